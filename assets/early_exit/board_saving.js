// Taking it along: each run as a trace, all of them as one page.
SpecViz.boardSaving = (() => {
  const { el, setText } = SpecViz.dom;
  const WORDS = { map: "map", timed: "timed", sweep: "sweep", plain: "plain", early_exit: "early exit", self_speculation: "self-speculation", drafted: "draft" };

  /** @param makePage(parts): Promise of the page's text; null where no page can be made */
  function createView({ look, makePage }) {
    const traces = el("span", { class: "sv-save-traces" });
    const status = el("span", { class: "sv-muted", role: "status" });
    const page = el("button", { class: "sv-do sv-quiet", type: "button", dataset: { save: "page" }, onClick: savePage }, "One HTML page");
    const node = el("section", { class: "sv-saving" }, el("h2", {}, "Take it along"), el("span", { class: "sv-muted" }, "traces (JSONL):"), traces, makePage ? page : null, status);
    let shown = "";

    function draw(parts, isBusy) {
      page.disabled = isBusy || parts.length === 0;
      const wanted = parts.map((part) => `${part.role}${part.state.run.run_id}`).join();
      if (wanted === shown) return;
      shown = wanted;
      traces.replaceChildren(...parts.map((part, index) => el("button", { class: "sv-fold sv-save", type: "button", onClick: () => saveTrace(part) }, nameOf(parts, index))));
    }

    function saveTrace({ role, state, lines }) {
      SpecViz.plotSave.download(`specviz-${role.replaceAll("_", "-")}-${safe(state.run.run_id)}.jsonl`, lines.map((line) => `${line}\n`).join(""), "application/x-ndjson");
    }

    async function savePage() {
      setText(status, "Making the page");
      const parts = look();
      const made = await makePage(parts.map(({ role, lines }) => ({ role, lines }))).catch(() => null);
      if (made && made.page) {
        SpecViz.plotSave.download(`specviz-early-exit-${safe(parts[0].state.run.run_id)}.html`, made.page, "text/html");
        setText(status, "");
      } else setText(status, (made && made.error) || "The page could not be made; the traces can be saved all the same.");
    }

    return { node, draw };
  }

  /** Several timed runs are told apart by their thresholds. */
  function nameOf(parts, index) {
    const { role, state } = parts[index];
    const word = WORDS[role] || role;
    return role === "timed" || role === "sweep" ? `${word}, ${SpecViz.exitWords.ruleWords(state.run.early_exit)}` : word;
  }

  const safe = (text) => String(text).replace(/[^\w-]/g, "");

  return { createView };
})();
