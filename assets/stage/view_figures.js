// The running figures, each with what it was divided by.
SpecViz.figuresView = (() => {
  const { el, setText } = SpecViz.dom;
  const { term } = SpecViz.glossaryTips;
  const { figuresOf, formatRatio, formatSeconds } = SpecViz.figures;

  const TILES = [
    {
      name: "alpha", label: "accepted / judged (α)",
      value: (f) => formatRatio(f.alpha), of: (f, t) => `${t.accepted} / ${f.judged}`,
    },
    {
      name: "draft_acceptance_rate", label: "accepted / drafted",
      value: (f) => formatRatio(f.draftAcceptanceRate), of: (f, t) => `${t.accepted} / ${t.drafted}`,
    },
    {
      name: "mean_tokens_per_round", label: "tokens / target pass",
      value: (f) => formatRatio(f.meanTokensPerRound), of: (f, t) => `${t.committed} / ${t.rounds}`,
    },
    {
      name: "tokens_per_second", label: "tokens / second",
      value: (f) => (f.tokensPerSecond === null ? "–" : f.tokensPerSecond.toFixed(1)), of: (f, t) => `${t.committed} / ${formatSeconds(f.seconds)}`,
    },
  ];
  const EXIT_TILES = [
    {
      name: "mean_layers_per_token", label: "layers / token",
      value: (f) => (f.meanLayers === null ? "–" : f.meanLayers.toFixed(1)), of: (f, t) => `${t.layersRun} / ${t.committed}`,
    },
    {
      name: "left_early", label: "left early",
      value: (f, t) => String(t.leftEarly), of: (f, t) => `of ${t.committed} tokens`,
    },
    ...TILES.slice(2),
  ];
  const PARTS = [["draft", "draftShare", "draftSeconds"], ["verify", "verifyShare", "verifySeconds"], ["other", "otherShare", "otherSeconds"]];

  function createView() {
    let tiles = TILES.map(createTile);
    const list = el("dl", { class: "sv-tiles" }, tiles.map((tile) => tile.node));
    let isExitRun = false;
    const split = createSplit();
    const source = el("span", { class: "sv-muted" });
    const node = el(
      "section",
      { class: "sv-figures" },
      el("div", { class: "sv-zone-head" }, el("h2", {}, "So far"), source),
      list,
      split.node,
    );

    function draw(state, frame) {
      const figures = figuresOf(frame.totals);
      if (isExitRun !== Boolean(state.run && state.run.early_exit)) {
        isExitRun = !isExitRun;
        tiles = (isExitRun ? EXIT_TILES : TILES).map(createTile);
        list.replaceChildren(...tiles.map((tile) => tile.node));
      }
      setText(source, `measured in ${frame.runWords}`);
      tiles.forEach((tile) => tile.draw(figures, frame.totals));
      split.draw(figures, frame.totals);
    }

    return { node, draw };
  }

  function createTile(tile) {
    const value = el("dd", { class: "sv-value", dataset: { figure: tile.name } });
    const of = el("dd", { class: "sv-of" });
    const node = el("div", { class: "sv-tile" }, el("dt", {}, term(tile.name, tile.label)), value, of);
    return {
      node,
      draw(figures, totals) {
        setText(value, tile.value(figures, totals));
        setText(of, totals.rounds > 0 ? tile.of(figures, totals) : "no round yet");
      },
    };
  }

  function createSplit() {
    const bars = PARTS.map(([part]) => el("i", { class: "sv-split-bar", dataset: { part } }));
    const shares = PARTS.map(() => el("span"));
    const times = PARTS.map(() => el("span", { class: "sv-muted" }));
    const labels = PARTS.map(([part], index) => el("li", { dataset: { part } }, shares[index], times[index]));
    const node = el(
      "div",
      { class: "sv-split" },
      el("div", { class: "sv-split-bars", "aria-hidden": "true" }, bars),
      el("ul", { class: "sv-split-labels" }, labels),
    );
    return {
      node,
      draw(figures, totals) {
        PARTS.forEach(([part, share, seconds], index) => {
          const value = figures[share];
          bars[index].style.setProperty("flex-grow", value === null ? 0 : value);
          setText(shares[index], value === null ? part : `${part} ${Math.round(100 * value)}%`);
          setText(times[index], value === null ? "" : formatSeconds(totals[seconds]));
        });
      },
    };
  }

  return { createView };
})();
