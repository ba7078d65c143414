// Both KV caches: the newest positions one by one. Solid is kept, hatched is not verified yet, and
// what a roll back takes away is crossed out before it goes.
SpecViz.cachesView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { formatBytes } = SpecViz.figures;
  const WINDOW = 26; // positions drawn one by one
  const NAMES = { draft_head: "Draft head", draft_model: "Draft model" };
  const MARGIN = 2; // empty ones at the end, so that there is somewhere to grow

  function createView() {
    const target = createStrip("Target");
    const draft = createStrip("Drafter");
    const lost = el("span", { class: "sv-muted" });
    const node = el(
      "section",
      { class: "sv-caches" },
      el("div", { class: "sv-zone-head" }, el("h2", {}, SpecViz.glossaryTips.term("cache", "KV caches")), lost),
      target.node,
      draft.node,
    );

    function draw(state, { cacheFrame: frame }) {
      const caches = frame.round ? frame.round.event.cache || {} : null;
      const cut = frame.totals.rolledBack;
      setText(lost, cut > 0 ? `${cut} drafted position${cut === 1 ? "" : "s"} cut so far` : "");
      const prefill = state.prefill ? state.prefill.cache || {} : {};
      target.draw(momentOf("target", caches, frame, prefill), state.run ? state.run.target.kv_bytes_per_position : null);
      const kind = state.run ? state.run.drafter.kind : "";
      const drafts = kind === "draft_head" ? momentOfHead(caches, frame, prefill) : momentOf("draft", caches, frame, prefill);
      draft.name(NAMES[kind] || "Drafter", kind === "draft_head" ? "entries" : "positions");
      draft.draw(drafts, drafts ? bytesPerPosition(state) : null, drafts ? "" : noCacheWhy(state, caches));
    }

    return { node, draw };
  }

  function bytesPerPosition({ run }) {
    const bytes = run.drafter.kv_bytes_per_position;
    return typeof bytes === "number" ? bytes : null;
  }

  function noCacheWhy(state, caches) {
    if (!state.run) return "";
    const { kind } = state.run.drafter;
    if (kind === "none") return "no drafter";
    if (kind === "prompt_lookup") return "none: prompt lookup only searches the text";
    const layers = (caches && caches.shared_layers) || state.run.drafter.exit_layer;
    if (kind === "early_exit") return `none of its own: it drafts in the target's first ${layers ? `${layers} ` : ""}layers`;
    return "none";
  }

  /** {kept, unverified, cut, from, bytes}: what one cache holds at this moment of the round. */
  function momentOf(which, caches, frame, prefill) {
    if (caches === null) {
      const kept = prefill[which];
      return kept === null || kept === undefined ? null : { kept, unverified: 0, cut: 0, peak: kept, bytes: null };
    }
    const use = caches[which];
    if (!use) return null;
    const { before, peak, after } = use;
    const progress = frame.progress;
    const base = { peak, bytes: use.bytes, cut: 0 };
    if (progress.joined) return { ...base, kept: after, unverified: 0 };
    if (progress.rolledBack) return { ...base, kept: after, unverified: 0, cut: peak - after };
    const grown = grownBy(which, peak - before, frame);
    return { ...base, kept: before, unverified: grown, bytes: null };
  }

  /**
   * A draft head's entries: with the first guess come those of the target's states, which stay; every further guess
   * reads one of the head's own, and all of these go again, also those of accepted tokens.
   */
  function momentOfHead(caches, frame, prefill) {
    const use = caches && caches.draft;
    const { progress } = frame;
    const hasRead = progress && (progress.drafted > 0 || progress.verified);
    if (!use || !hasRead || progress.rolledBack || progress.joined) return momentOf("draft", caches, frame, prefill);
    const { peak, after } = use;
    const own = Math.min(Math.max(progress.drafted - 1, 0), peak - after);
    return { peak, kept: after, unverified: own, cut: 0, bytes: null };
  }

  function grownBy(which, most, frame) {
    if (which === "target") return frame.progress.verified ? most : 0;
    const drafted = (frame.round.event.draft || []).length;
    return drafted === 0 ? (frame.progress.verified ? most : 0) : Math.round((most * frame.progress.drafted) / drafted);
  }

  function createStrip(name) {
    const positions = el("span", { class: "sv-positions" });
    const bytes = el("span", { class: "sv-muted" });
    const earlier = el("span", { class: "sv-earlier" });
    const cells = Array.from({ length: WINDOW }, () => el("i", { class: "sv-kv" }));
    const strip = el("div", { class: "sv-strip", "aria-hidden": "true" }, earlier, cells);
    const nothing = el("span", { class: "sv-muted sv-nothing" });
    const title = el("span", { class: "sv-cache-name" }, name);
    const node = el("div", { class: "sv-cache" }, title, positions, bytes, nothing, strip);
    let unit = "positions";

    function rename(words, unitWord) {
      setText(title, words);
      unit = unitWord;
    }

    function draw(moment, bytesPerPosition, why = "") {
      strip.hidden = moment === null;
      nothing.hidden = moment !== null;
      setText(nothing, why);
      setText(positions, moment ? wordsOf(moment, unit) : "");
      const held = moment ? moment.kept + moment.unverified : 0;
      const size = moment ? (moment.bytes ?? (bytesPerPosition ? held * bytesPerPosition : null)) : null;
      setText(bytes, size === null ? "" : formatBytes(size));
      if (moment) drawCells(moment);
    }

    function drawCells({ kept, unverified, cut, peak }) {
      const first = Math.max(0, peak - (WINDOW - MARGIN));
      setText(earlier, first > 0 ? `${first} earlier` : "");
      earlier.hidden = first === 0;
      cells.forEach((cell, index) => setData(cell, "kind", kindAt(first + index, kept, unverified, cut)));
    }

    return { node, draw, name: rename };
  }

  function kindAt(position, kept, unverified, cut) {
    if (position < kept) return "kept";
    if (position < kept + unverified) return "unverified";
    return position < kept + unverified + cut ? "cut" : null;
  }

  function wordsOf({ kept, unverified, cut }, unit) {
    if (cut > 0) return `${kept} ${unit}, ${cut} cut`;
    return unverified > 0 ? `${kept} + ${unverified} unverified` : `${kept} ${unit}`;
  }

  return { createView, noCacheWhy, momentOfHead };
})();
