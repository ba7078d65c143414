// The round in hand, as one pass of the target: the band over all its positions, what came of the last one, and
// the line behind which everything is rolled back.
SpecViz.roundPass = (() => {
  const { el, setData } = SpecViz.dom;
  const { draftOf, countStatus, numRolledBack } = SpecViz.reducer;
  const { formatSeconds } = SpecViz.figures;
  const { hint } = SpecViz.glossaryTips;

  /** The band behind the target's row: all positions, one pass. */
  function passBand(event) {
    const fed = event ? draftOf(event).length + 1 : 0;
    const seconds = event && event.seconds ? `, ${formatSeconds(event.seconds.verify)}` : "";
    const label = event && !event.isPending ? `one pass over ${fed} position${fed === 1 ? "" : "s"}${seconds}` : "";
    return el("span", { class: "sv-band", dataset: { beat: "verify", single: fed === 1 ? "1" : null }, style: { "--fed": fed || null } }, el("span", { class: "sv-band-label" }, label));
  }

  /** {start, size}: the positions that are rolled back; null where none is. */
  function rolledBackOf(event) {
    const size = event.isPending ? 0 : numRolledBack(event);
    return size === 0 ? null : { start: draftOf(event).length - size + 1, size };
  }

  function rollbackMark(event) {
    const withdrawn = rolledBackOf(event);
    if (withdrawn === null) return null;
    const { start, size } = withdrawn;
    return el(
      "span",
      { class: "sv-rollback", dataset: { beat: "rollback", single: size === 1 ? "1" : null }, style: { "--position": start, "--size": size } },
      el("span", { class: "sv-rollback-label" }, `↩ roll back ${size}`),
    );
  }

  const isAllAccepted = (event) => Boolean(event.extra) && countStatus(event, "accepted") === draftOf(event).length;

  /** What the pass says after the last guess counts as a bonus, and only if every guess before it held. */
  function unusedCell(event, place) {
    const position = draftOf(event).length + 1;
    const isRejected = countStatus(event, "rejected") > 0;
    const when = isRejected ? { beat: "rollback" } : { beat: "judge", at: countStatus(event, "accepted") };
    return el(
      "span",
      { class: "sv-cell sv-target", dataset: when, style: place("target", position) },
      el("span", { class: "sv-void" }, isRejected ? ["no ", hint("bonus", "bonus")] : "not used"),
    );
  }

  /** Where a position is a row, the line of the roll back and its words go over these cells. */
  function markUnderTheLine(cells, event) {
    const withdrawn = rolledBackOf(event);
    const isThere = (cell) => cell && cell.matches(".sv-cell") && cell.style.getPropertyValue("--position") === String(withdrawn.start);
    if (withdrawn === null) return;
    for (const cell of cells.filter(isThere)) setData(cell, "underLine", "1");
  }

  return { isAllAccepted, unusedCell, passBand, rollbackMark, markUnderTheLine };
})();
