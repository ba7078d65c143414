// The running figures, each with what it was divided by.
SpecViz.figuresView = (() => {
  const { el, setText } = SpecViz.dom;
  const { figuresOf, formatRatio, formatSeconds } = SpecViz.figures;

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
    const node = el(
      "section",
      { class: "sv-figures" },
      el("div", { class: "sv-zone-head" }, el("h2", {}, "So far"), el("span", { class: "sv-muted" }, "measured in this run")),
      el("dl", { class: "sv-tiles" }, tiles.map((tile) => tile.node)),
      split.node,
    );

    function draw(state, frame) {
      const figures = figuresOf(frame.totals);
      tiles.forEach((tile) => tile.draw(figures, frame.totals));
      split.draw(figures, frame.totals);
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

  return { createView };
})();
