// The round in hand, token by token: which one a cell stands for, the die that was thrown for it, and the
// residual that the correction was drawn from.
SpecViz.roundTokens = (() => {
  const { el, tokenText } = SpecViz.dom;
  const { draftOf } = SpecViz.reducer;
  const { keyOf, isNumber } = SpecViz.inspection;
  const { formatProbability } = SpecViz.figures;
  const NUM_RESIDUAL = 3; // the most probable ones are enough here; the inspector has all

  /** For the card and the inspector; a token that is still being drawn has no verdict, and so neither. */
  function tokenAttributes(event, place, { isButton = false } = {}) {
    if (event.isPending) return {};
    return { token: keyOf({ round: event.round, place }), ...(isButton ? { tabindex: "0", role: "button" } : {}) };
  }

  const isThrown = (token) => isNumber(token.u) && isNumber(token.accept_prob);
  const hasDice = (event) => draftOf(event).some(isThrown);

  /** With a temperature: the die against the ratio it had to stay below. */
  function dieOf(token) {
    if (!isThrown(token)) return null;
    const sign = token.u < token.accept_prob ? "<" : "≥";
    return [
      SpecViz.diceGauge.gauge(token.u, token.accept_prob),
      el("span", { class: "sv-die" }, `${token.u.toFixed(3)} ${sign} ${token.accept_prob.toFixed(3)}`),
    ];
  }

  /** Beside the correction, where the rolled back tokens leave room. */
  function residualCell(event, numColumns, place) {
    const top = event.extra && event.extra.kind === "correction" ? event.extra.residual_top : null;
    const rejected = draftOf(event).findIndex((token) => token.status === "rejected") + 1;
    if (!top || rejected === 0 || numColumns <= rejected) return null;
    const rows = top.slice(0, NUM_RESIDUAL).map(([id, text, prob]) => residualRow({ id, text }, prob, id === event.extra.id));
    return el(
      "span",
      { class: "sv-cell sv-residual", dataset: { beat: "land" }, style: { ...place("kept", rejected + 1), "--size": numColumns - rejected } },
      el("span", { class: "sv-residual-head" }, "drawn from the ", SpecViz.glossaryTips.term("residual", "residual")),
      rows,
    );
  }

  function residualRow(token, prob, isDrawn) {
    return el(
      "span",
      { class: "sv-residual-row", dataset: { drawn: isDrawn ? "1" : null } },
      tokenText(token),
      el("i", { class: "sv-bar", "aria-hidden": "true", style: { "--p": prob } }),
      el("span", { class: "sv-number" }, formatProbability(prob)),
    );
  }

  return { tokenAttributes, dieOf, hasDice, residualCell };
})();
