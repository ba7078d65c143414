// The running figures, each with what it was divided by, and the two lines of proof.
SpecViz.figuresView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { figuresOf, speedupOf, formatRatio, formatSeconds } = SpecViz.figures;

  const TILES = [
    {
      name: "alpha", label: "acceptance α", title: "of the guesses that were judged, how many the target agreed with",
      value: (f) => formatRatio(f.alpha), of: (f, t) => `${t.accepted} accepted / ${f.judged} judged`,
    },
    {
      name: "draft_acceptance_rate", label: "of all drafted", title: "of everything that was drafted, how much was kept; falls as k grows",
      value: (f) => formatRatio(f.draftAcceptanceRate), of: (f, t) => `${t.accepted} accepted / ${t.drafted} drafted`,
    },
    {
      name: "mean_tokens_per_round", label: "tokens per target pass", title: "what one target pass brought; k + 1 at most",
      value: (f) => formatRatio(f.meanTokensPerRound), of: (f, t) => `${t.committed} tokens / ${t.rounds} rounds`,
    },
    {
      name: "tokens_per_second", label: "tokens per second", title: "over the rounds' own seconds; reading the prompt is not in it",
      value: (f) => (f.tokensPerSecond === null ? "–" : f.tokensPerSecond.toFixed(1)), of: (f, t) => `${t.committed} tokens / ${formatSeconds(f.seconds)}`,
    },
  ];
  const PARTS = [["draft", "draftShare", "draftSeconds"], ["verify", "verifyShare", "verifySeconds"], ["other", "otherShare", "otherSeconds"]];

  function createView() {
    const tiles = TILES.map(createTile);
    const split = createSplit();
    const proof = createProof();
    const node = el(
      "section",
      { class: "sv-figures" },
      el("div", { class: "sv-zone-head" }, el("h2", {}, "Was it worth it?"), el("span", { class: "sv-muted" }, "measured in this run, so far")),
      el("dl", { class: "sv-tiles" }, tiles.map((tile) => tile.node)),
      split.node,
      proof.node,
    );

    function draw(state, frame) {
      const figures = figuresOf(frame.totals);
      tiles.forEach((tile) => tile.draw(figures, frame.totals));
      split.draw(figures, frame.totals);
      proof.draw(state);
    }

    return { node, draw };
  }

  function createTile(tile) {
    const value = el("dd", { class: "sv-value", dataset: { figure: tile.name } });
    const of = el("dd", { class: "sv-of" });
    const node = el("div", { class: "sv-tile", title: tile.title }, el("dt", {}, tile.label), value, of);
    return {
      node,
      draw(figures, totals) {
        setText(value, tile.value(figures));
        setText(of, totals.rounds > 0 ? tile.of(figures, totals) : "no round yet");
      },
    };
  }

  function createSplit() {
    const bars = PARTS.map(([part]) => el("i", { class: "sv-split-bar", dataset: { part } }));
    const labels = PARTS.map(([part]) => el("li", { dataset: { part } }));
    const node = el(
      "div",
      { class: "sv-split" },
      el("span", { class: "sv-split-title" }, "Time"),
      el("div", { class: "sv-split-bars", "aria-hidden": "true" }, bars),
      el("ul", { class: "sv-split-labels" }, labels),
    );
    return {
      node,
      draw(figures, totals) {
        PARTS.forEach(([part, share, seconds], index) => {
          const value = figures[share];
          bars[index].style.setProperty("flex-grow", value === null ? 0 : value);
          setText(labels[index], value === null ? part : `${part} ${Math.round(100 * value)}% · ${formatSeconds(totals[seconds])}`);
        });
      },
    };
  }

  function createProof() {
    const identity = el("dd", { dataset: { proof: "identity" } });
    const speedup = el("dd", { dataset: { proof: "speedup" } });
    const node = el(
      "dl",
      { class: "sv-proof" },
      el("div", {}, el("dt", {}, "Identical to plain decoding"), identity),
      el("div", {}, el("dt", {}, "Speedup over plain decoding"), speedup),
    );
    return {
      node,
      draw(state) {
        setText(identity, identityText(state));
        setData(identity, "answer", state.identity ? String(state.identity.identical) : null);
        setText(speedup, speedupText(state));
        setData(speedup, "answer", speedupOf(state) === null ? null : "measured");
      },
    };
  }

  function identityText(state) {
    const { identity } = state;
    if (!identity) return "not checked in this run";
    if (identity.identical === true) return "yes, token for token, checked in this run";
    if (identity.identical === null) return identity.why || "cannot be compared token by token";
    const where = identity.first_difference;
    if (!where) return "no";
    const texts = (where.texts || []).map((text) => (text === null ? "the end" : JSON.stringify(text)));
    const gap = where.top2_gap === null || where.top2_gap === undefined ? "" : `; the two were ${where.top2_gap.toPrecision(2)} logits apart (${where.dtype})`;
    return `no: new token ${where.position + 1} is ${texts[1]}, plain decoding says ${texts[0]}${gap}`;
  }

  function speedupText(state) {
    const speedup = speedupOf(state);
    if (speedup === null) return "not measured";
    return `${speedup.toFixed(2)}×, measured: plain decoding ran at ${state.identity.plain_tokens_per_second.toFixed(1)} tokens/s`;
  }

  return { createView };
})();
