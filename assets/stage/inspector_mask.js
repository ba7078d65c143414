// The attention of a verification pass as a picture: a row for each token that is fed, a column for each
// position it may see. The cached positions stand as one block.
SpecViz.inspectorMask = (() => {
  const { el, tokenText } = SpecViz.dom;
  const { STATUSES, ORIGINS } = SpecViz.vocabulary;

  function draw(pass, description) {
    const numFed = pass.rows.length;
    return el(
      "div",
      { class: "sv-mask-scroll", tabindex: "0", role: "region", "aria-label": "Attention mask of the pass" },
      el(
        "div",
        { class: "sv-mask", role: "img", "aria-label": description, style: { "--fed": numFed } },
        heads(pass),
        pass.rows.map((row, index) => maskRow(row, index, pass)),
      ),
    );
  }

  function heads({ numCached, rows }) {
    return el(
      "div",
      { class: "sv-mask-row sv-mask-heads" },
      el("span", { class: "sv-mask-label" }, "fed"),
      el("span", { class: "sv-mask-cached" }, numCached === null ? "cached" : numCached === 0 ? "" : numCached === 1 ? "0" : `0–${numCached - 1}`),
      rows.map((row, index) => el("span", { class: "sv-mask-head" }, row.position === null ? `+${index}` : row.position)),
      el("span", { class: "sv-mask-gives" }, "gives"),
    );
  }

  function maskRow(row, index, { numCached, rows }) {
    return el(
      "div",
      { class: "sv-mask-row", dataset: { subject: row.isSubject ? "1" : null, unused: row.gives.unused ? "1" : null } },
      el("span", { class: "sv-mask-label" }, tokenText(row.token), row.isPending ? el("span", { class: "sv-muted" }, "pending") : null),
      el("i", { class: "sv-mask-cell sv-mask-cached", dataset: { sees: numCached === 0 ? null : "1" } }),
      rows.map((_, column) => el("i", { class: "sv-mask-cell", dataset: { sees: column <= index ? "1" : null, self: column === index ? "1" : null } })),
      el("span", { class: "sv-mask-gives" }, outcome(row.gives)),
    );
  }

  function outcome({ token, status, kind, unused }) {
    if (unused) return unused === "discarded" ? "void" : "not used";
    const known = kind ? ORIGINS[kind] || ORIGINS.unknown : STATUSES[status];
    return [el("i", { class: "sv-versus-mark", dataset: { origin: kind || status } }, known.glyph), tokenText(token)];
  }

  return { draw };
})();
