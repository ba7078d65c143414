// The earlier turns of a conversation, folded, and how much of their KV was used again.
SpecViz.turnsView = (() => {
  const { el, setText } = SpecViz.dom;
  const WHO = { user: "You", assistant: "Model", system: "System" };

  const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  /** What the prompt says about the turns before it; null where there are none. */
  function summaryOf(prompt) {
    const history = (prompt && prompt.history) || [];
    if (history.length === 0) return null;
    const numTurns = history.filter((message) => message.role === "user").length;
    const numFed = Math.max(0, (prompt.token_ids || []).length - 1 - (prompt.reused || 0));
    return {
      head: `${counted(numTurns, "earlier turn")}, ${counted(prompt.earlier || 0, "token")}`,
      kept: `KV of ${counted(prompt.reused || 0, "position")} kept and used again, ${numFed} fed anew`,
      messages: history.map((message) => ({ who: WHO[message.role] || String(message.role), text: String(message.content) })),
    };
  }

  function createView() {
    const head = el("summary", {});
    const kept = el("span", { class: "sv-muted" });
    const list = el("ol", { class: "sv-turns-list" });
    const fold = el("details", {}, head, list);
    const node = el("section", { class: "sv-turns", "aria-label": "Earlier turns" }, fold);
    let shownRun;

    function draw(state) {
      if (state.run === shownRun) return;
      shownRun = state.run;
      const summary = summaryOf(state.run && state.run.prompt);
      node.hidden = summary === null;
      fold.open = false;
      if (summary === null) return;
      setText(kept, summary.kept);
      head.replaceChildren(`${summary.head} · `, kept);
      list.replaceChildren(
        ...summary.messages.map(({ who, text }) => el("li", {}, el("b", {}, who), el("bdi", { class: "sv-turn-text" }, text))),
      );
    }

    return { node, draw };
  }

  return { summaryOf, createView };
})();
