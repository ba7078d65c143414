// The line on top: what is shown here, a recording or a live run, of which model, and how it stands.
SpecViz.sourceView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { DRAFTERS, WHY_IT_ENDED } = SpecViz.vocabulary;
  const { term } = SpecViz.glossaryTips;

  function createView() {
    const badge = el("span", { class: "sv-badge" });
    const title = el("span", { class: "sv-source-title" });
    const details = el("span", { class: "sv-source-details" });
    const status = el("p", { class: "sv-status", role: "status" });
    const node = el("header", { class: "sv-source" }, el("p", { class: "sv-source-line" }, badge, title, details), status);

    let described = null; // the run whose details stand there

    /** `status`: {phase: "recording" | "waiting" | "running" | "done" | "error", note} */
    function draw(state, source) {
      const isLive = source.kind === "live";
      setText(badge, isLive ? "Live run" : "Recording");
      setData(badge, "kind", source.kind);
      setText(title, state.run ? state.run.target.name : "");
      if (state.run !== described) details.replaceChildren(...(state.run ? describe(state.run, isLive) : []));
      described = state.run;
      setText(status, statusText(state, source));
      setData(status, "phase", source.phase);
    }

    return { node, draw };
  }

  function describe(run, isLive) {
    const { settings, target, drafter, early_exit: exits } = run;
    const k = settings.num_draft_tokens;
    const drafts = drafter.kind === "none" ? DRAFTERS.none : term(drafter.kind, DRAFTERS[drafter.kind] || drafter.kind);
    const asked = drafter.kind === "none" ? "" : [", ", term("k", "k"), ` = ${k}`];
    const temperature = settings.temperature > 0 ? `temperature ${settings.temperature}` : term("greedy", "greedy");
    const recorded = !isLive && run.created ? ` · recorded on ${run.created.slice(0, 10)}` : "";
    const how = exits ? exitWords(exits) : [drafts, ...asked];
    return [...how, " · ", temperature, ` · ${shortDtype(target.dtype)} on ${target.device}${recorded}`];
  }

  /** How tokens may leave early; a map run is the full model. */
  function exitWords({ run, measure, threshold }) {
    const asked = typeof threshold === "number" ? `${measure} ≥ ${threshold}` : "never";
    const kind = run === "map" ? "map: every layer is run and read out" : `unverified, ${asked}`;
    return [term("early_exit_decoding", "early exit"), ` (${kind})`];
  }

  const shortDtype = (dtype) => String(dtype).replace("torch.", "");

  function statusText(state, source) {
    if (source.note) return source.note;
    if (state.failed) return state.failed.error;
    if (source.kind === "recording") return "";
    if (source.phase === "running") return state.finished ? "Comparing with plain decoding" : "Generating";
    return state.finished ? `Over: ${WHY_IT_ENDED[state.finished.reason] || state.finished.reason}` : "";
  }

  return { createView };
})();
