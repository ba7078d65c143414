// The parts of the inspector, each drawn from what `inspection` says: the die, the two distributions, the
// residual, the pass, the time and the caches of the round.
SpecViz.inspectorParts = (() => {
  const { el, tokenText } = SpecViz.dom;
  const { term } = SpecViz.glossaryTips;
  const { STATUSES, ORIGINS } = SpecViz.vocabulary;
  const { isNumber } = SpecViz.inspection;
  const { exact, ratioWords, adjustmentNote, passSentence, passDescription, WHY_A_SIDE_IS_MISSING } = SpecViz.inspectionWords;
  const { formatSeconds, formatBytes } = SpecViz.figures;
  const { whyNeverDrafted } = SpecViz.drafterFacts;
  const { capitalized } = SpecViz.sentence;

  function part(name, title, ...children) {
    return el("section", { class: `sv-part sv-part-${name}` }, el("h3", {}, title), children.flat(2));
  }

  const note = (words) => el("p", { class: "sv-part-note" }, words);

  // ---- the die ----

  function diePart({ verdict }) {
    if (verdict.kind !== "sampled") return null;
    const { u, chance, passed } = verdict;
    return part(
      "die",
      term("u", "The die"),
      el("div", { class: "sv-die-scale" }, SpecViz.diceGauge.gauge(u, chance), el("span", {}, "0"), el("span", {}, "1")),
      el(
        "dl",
        { class: "sv-pairs" },
        pair("die u", exact(u)),
        pair("ratio", ratioWords(verdict)),
        pair("chance", exact(chance)),
        pair("u < ratio?", passed ? "yes: accepted" : "no: rejected", passed ? "accepted" : "rejected"),
      ),
    );
  }

  function pair(name, value, status = null) {
    return el("div", {}, el("dt", {}, name), el("dd", { dataset: { status } }, value));
  }

  // ---- the two distributions ----

  const SIDES = { draft: "Drafter", target: "Target" };

  /** Side by side where both are known; else the one that is, and why the other is not. */
  function comparisonPart({ comparison }, settings, drafter) {
    const { rows, missing, correction } = comparison;
    const neverDrafted = whyNeverDrafted(drafter, correction);
    const sides = Object.keys(SIDES).filter((side) => rows.some((row) => isNumber(row[side])));
    return part(
      "comparison",
      "What the two models found probable",
      Object.keys(SIDES).map((side) => (missing[side] ? note(`${SIDES[side]}: ${WHY_A_SIDE_IS_MISSING[missing[side]]}.`) : null)),
      sides.length === 2 ? versusRows(comparison) : null,
      sides.length === 1 ? singleRows(comparison, sides[0]) : null,
      neverDrafted ? note(neverDrafted) : null,
      sides.length > 0 ? note(adjustmentNote(settings)) : null,
    );
  }

  function versusRows({ rows, tail, missing }) {
    return [
      el("div", { class: "sv-versus", "aria-hidden": "true" }, sideHead("draft"), el("span"), sideHead("target")),
      el("ul", { class: "sv-rows" }, rows.map((row) => versusRow(row, missing)), tailRow(tail)),
    ];
  }

  const sideHead = (side) => el("strong", { class: "sv-side-head", dataset: { side } }, SIDES[side]);

  function singleRows({ rows, tail }, side) {
    const known = rows.filter((row) => isNumber(row[side])).sort((a, b) => b[side] - a[side]);
    return [
      el("strong", { class: "sv-side-head" }, SIDES[side]),
      el("ul", { class: "sv-rows" }, known.map((row) => singleRow(row, row.marks, row.isSubject, row[side], side)), singleTail(tail[side], side)),
    ];
  }

  function singleRow(token, marks, isSubject, prob, side) {
    return el(
      "li",
      { class: "sv-single", dataset: { subject: isSubject ? "1" : null } },
      el("span", { class: "sv-versus-token" }, marks.map(markOf), tokenText(token)),
      sideBar(side, prob, null),
    );
  }

  function singleTail(mass, side) {
    if (!isNumber(mass)) return null;
    return el("li", { class: "sv-single sv-tail" }, el("span", { class: "sv-versus-token" }, "all others"), sideBar(side, mass, null));
  }

  function versusRow(row, missing) {
    return el(
      "li",
      { class: "sv-versus", dataset: { subject: row.isSubject ? "1" : null } },
      sideBar("draft", row.draft, missing.draft),
      el("span", { class: "sv-versus-token" }, row.marks.map(markOf), tokenText(row)),
      sideBar("target", row.target, missing.target),
    );
  }

  function markOf(origin) {
    const { glyph, word } = STATUSES[origin] || ORIGINS[origin] || ORIGINS.unknown;
    return el("i", { class: "sv-versus-mark", dataset: { origin }, role: "img", "aria-label": word }, glyph);
  }

  function sideBar(side, prob, whyMissing) {
    const words = isNumber(prob) ? exact(prob) : whyMissing ? "" : "not in its top 5";
    return el(
      "span",
      { class: "sv-side", dataset: { side, known: isNumber(prob) ? "1" : null } },
      el("span", { class: "sv-hidden" }, side === "draft" ? "drafter " : "target "),
      el("i", { class: "sv-side-bar", "aria-hidden": "true", hidden: prob === 0, style: { "--p": isNumber(prob) ? prob : 0 } }),
      el("span", { class: "sv-number" }, words),
    );
  }

  function tailRow(tail) {
    if (!isNumber(tail.draft) && !isNumber(tail.target)) return null;
    const side = (name) => sideBar(name, tail[name], isNumber(tail[name]) ? null : "none");
    return el("li", { class: "sv-versus sv-tail" }, side("draft"), el("span", { class: "sv-versus-token" }, "all others"), side("target"));
  }

  // ---- the residual ----

  function residualPart({ residual }) {
    if (!residual) return null;
    const rows = residual.rows.map((row) => singleRow(row, row.isDrawn ? ["correction"] : [], row.isDrawn, row.prob, "target"));
    return part(
      "residual",
      [term("residual", "The residual"), ": what the correction was drawn from"],
      el("ul", { class: "sv-rows" }, rows, singleTail(residual.tail, "target")),
    );
  }

  // ---- the pass ----

  function passPart({ pass }) {
    return part("pass", "One pass judges them all", note(passSentence(pass)), SpecViz.inspectorMask.draw(pass, passDescription(pass)));
  }

  // ---- time and caches ----

  function timePart({ seconds, round }) {
    const title = `Time of round ${round}`;
    if (!seconds) return part("time", title, note("not recorded in this trace"));
    const parts = Object.entries(seconds.parts);
    return part(
      "time",
      title,
      el("div", { class: "sv-split-bars", "aria-hidden": "true" }, parts.map(([name]) => el("i", { class: "sv-split-bar", dataset: { part: name }, style: { "flex-grow": seconds.shares[name] || 0 } }))),
      el("ul", { class: "sv-split-labels" }, parts.map(([name, value]) => timeLabel(name, value, seconds.shares[name]))),
      note(`${formatSeconds(seconds.total)} together, measured.`),
    );
  }

  function timeLabel(name, value, share) {
    const percent = share === null ? "" : ` ${Math.round(100 * share)}%`;
    return el("li", { dataset: { part: name } }, el("span", {}, `${name}${percent}`), el("span", { class: "sv-muted" }, formatSeconds(value)));
  }

  function cachesPart({ caches }, whyNoDraftCache) {
    const title = term("cache", "KV caches, in positions");
    if (!caches) return part("caches", title, note("not recorded in this trace"));
    const heads = ["", "before", "peak", "after"].map((name) => el("th", { scope: "col" }, name));
    return part(
      "caches",
      title,
      el("table", { class: "sv-cache-table" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, cacheRow("target", caches.target, "not recorded"), cacheRow("drafter", caches.draft, whyNoDraftCache))),
    );
  }

  function cacheRow(name, use, why) {
    const head = el("th", { scope: "row" }, capitalized(name));
    if (!use) return el("tr", {}, head, el("td", { colspan: "3", class: "sv-muted" }, why));
    const after = [use.after, isNumber(use.bytes) ? el("span", { class: "sv-muted" }, ` ${formatBytes(use.bytes)}`) : null];
    return el("tr", {}, head, el("td", {}, use.before), el("td", {}, use.peak), el("td", {}, after));
  }

  return { diePart, comparisonPart, residualPart, passPart, timePart, cachesPart };
})();
