// Threshold, quality, speed: the curve of all thresholds, simulated from the map, and the timed runs of this session on it.
SpecViz.tradeoffView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { exitBench, exitWords, tradeoffFigures } = SpecViz;
  const SECONDS_BETWEEN_PICTURES = 0.12;
  const CONFIG = { displayModeBar: false, responsive: false, doubleClick: false, scrollZoom: false, showTips: false };
  const NEAR = "300px 0px";
  const KEPT = 0.9; // share of tokens
  const FEWEST_TO_JUDGE = 16; // tokens

  /** @param onChoose(changes): another rule was chosen; @param onRun(): run the sweep */
  function createView({ simulation, loadPlotly, onChoose, onRun }) {
    const quality = createPlot("quality", "Quality against depth", "share of tokens that are the full model's");
    const speed = createPlot("speed", "Speed against depth", "times plain decoding’s tokens / second, both measured in the same run, once");
    const bestText = el("span");
    const take = el("button", { class: "sv-fold sv-take", type: "button", onClick: () => onChoose({ threshold: bestThreshold }) }, "take it");
    const best = el("p", { class: "sv-tradeoff-best" }, bestText, " ", take);
    const sweep = el("button", { class: "sv-do sv-quiet", type: "button", dataset: { run: "sweep" }, onClick: onRun }, "Run four thresholds for real");
    const note = el("p", { class: "sv-muted", role: "status" });
    const node = el(
      "section",
      { class: "sv-tradeoff" },
      el("div", { class: "sv-zone-head" }, el("h2", {}, "The trade-off"), el("span", { class: "sv-muted" }, "one threshold buys speed with quality: how much of each, on this prompt"), sweep),
      best,
      note,
      el("div", { class: "sv-tradeoff-plots" }, quality.node, speed.node),
    );

    let plotly = null;
    let wanted = null;
    let timer = null;
    let paintedAt = -Infinity;
    let bestThreshold = null;

    new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && fetchPlotly(), { rootMargin: NEAR }).observe(node);
    new ResizeObserver(paintSoon).observe(node);
    SpecViz.plotTheme.onChange(node, paintSoon);

    /** @param timed: states of the measured runs; @param map: of the map run; @param plain: tokens/s of plain decoding or null */
    function draw(timed, map, { isBusy, canRun }) {
      const curve = simulation.curve();
      const ofThisMeasure = (state) => state.run && exitBench.exitInfoOf(state) && exitBench.exitInfoOf(state).measure === simulation.chosen.measure;
      const points = timed.filter(ofThisMeasure).map((state) => pointOf(state, map));
      sweep.hidden = !canRun;
      sweep.disabled = isBusy || simulation.rule === null;
      wanted = { curve, points, now: simulation.outcome, numLayers: simulation.rule ? simulation.rule.numLayers : 1 };
      const found = bestOf(curve);
      bestThreshold = found ? found.threshold : null;
      setText(bestText, bestWords(curve, found));
      take.hidden = !found || found.layersSaved === 0 || found.threshold === simulation.chosen.threshold;
      setData(node, "points", points.filter((point) => point.meanLayers !== null).length);
      for (const plot of [quality, speed]) plot.say(wanted);
      paintSoon();
    }

    function paintSoon() {
      if (plotly === null || wanted === null || timer !== null) return;
      const wait = SECONDS_BETWEEN_PICTURES - (performance.now() / 1000 - paintedAt);
      timer = setTimeout(paint, Math.max(0, wait * 1000));
    }

    function paint() {
      timer = null;
      const theme = themeOf(node);
      quality.paint(plotly, tradeoffFigures.qualityFigure({ ...wanted, theme }), theme);
      speed.paint(plotly, tradeoffFigures.speedFigure({ ...wanted, theme }), theme);
      paintedAt = performance.now() / 1000;
      setData(node, "painted", Number(node.dataset.painted || 0) + 1);
    }

    function fetchPlotly() {
      if (!loadPlotly || plotly !== null || node.dataset.plotly === "loading") return;
      setData(node, "plotly", "loading");
      requestAnimationFrame(() => setTimeout(() => loadPlotly().then(begin, fail)));
    }

    function begin(library) {
      if (!library) return fail();
      plotly = library;
      setData(node, "plotly", "ready");
      return paintSoon();
    }

    function fail() {
      setData(node, "plotly", "failed");
      setText(note, "The plots could not be drawn, as plotly.js did not load.");
    }

    return { node, draw };
  }

  function pointOf(state, map) {
    const layers = exitBench.exitLayersOf(state);
    const full = map ? map.tokens : [];
    const numCompared = Math.min(state.tokens.length, full.length);
    const numSame = exitBench.numSameOf(state.tokens, full);
    return {
      threshold: state.run.early_exit.threshold ?? null, measure: SpecViz.exitRule.MEASURES[state.run.early_exit.measure]?.word || "", numSame, numCompared,
      meanLayers: SpecViz.figures.ratio(layers.reduce((sum, layer) => sum + layer, 0), layers.length),
      sameShare: state.run.settings.temperature > 0 ? null : SpecViz.figures.ratio(numSame, numCompared), speedup: speedupOf(state),
    };
  }

  /** Times as fast as plain decoding was when the run was compared with it; null where it was not, or is too short to say. */
  function speedupOf(state) {
    const { plainSpeedOf, FEWEST_TOKENS } = SpecViz.timedView;
    const [own, plain] = [SpecViz.figures.comparedSpeedOf(state), plainSpeedOf(state)];
    return own === null || !plain || state.tokens.length < FEWEST_TOKENS ? null : own / plain;
  }

  /** The fewest layers that this map would allow at 90% agreement; of a few tokens nothing is said. */
  function bestOf(curve) {
    const good = curve.filter((one) => one.agreement !== null && one.agreement >= KEPT && one.numTokens >= FEWEST_TO_JUDGE);
    return good.length === 0 ? null : good.reduce((least, one) => (one.meanLayers < least.meanLayers ? one : least));
  }

  function bestWords(curve, best) {
    if (best === null) return "";
    if (best.layersSaved === 0) return "On this map no threshold saves a layer and keeps 90% of the tokens (simulated).";
    return `On this map, ${exitWords.percent(best.layersSaved)} of the layers could be saved with 90% of the tokens kept, at threshold ${exitWords.thresholdText(best.threshold)} (simulated: ${best.numSame} of ${best.numTokens} tokens).`;
  }

  function themeOf(node) {
    return { ...SpecViz.plotTheme.themeOf(node), measured: getComputedStyle(node).getPropertyValue("--rejected").trim() };
  }

  function createPlot(name, title, of) {
    const canvas = el("div", { class: "sv-plot-canvas", "aria-hidden": "true" });
    const picture = el("div", { class: "sv-plot-picture", role: "img", "aria-label": title }, canvas);
    const key = el("ul", { class: "sv-plot-key" });
    const node = el("figure", { class: "sv-plot", dataset: { plot: name } }, el("figcaption", {}, el("div", { class: "sv-plot-head" }, el("h3", {}, title)), el("p", { class: "sv-plot-of" }, of)), picture, el("div", { class: "sv-plot-foot" }, key));
    let entries = "";

    function say({ curve, points }) {
      const known = curve.filter((one) => one.meanLayers !== null);
      const words = name === "quality" ? known.filter((_, index) => index % 20 === 0).map((one) => `threshold ${exitWords.thresholdText(one.threshold)}: ${one.meanLayers.toFixed(1)} layers, ${exitWords.percent(one.agreement)} the same`) : points.filter((point) => point.speedup !== null).map((point) => `threshold ${exitWords.thresholdText(point.threshold)}: ${point.speedup.toFixed(2)} times as fast as plain decoding`);
      picture.setAttribute("aria-label", `${title}. ${words.join("; ")}`);
    }

    function paint(Plotly, figure, theme) {
      const { clientWidth: width, clientHeight: height } = canvas;
      if (width === 0) return;
      Plotly.react(canvas, figure.data, { ...tradeoffFigures.layoutOf(figure, theme), width, height }, CONFIG);
      if (entries === JSON.stringify(figure.key)) return;
      entries = JSON.stringify(figure.key);
      key.replaceChildren(...figure.key.map(({ mark, tone, word }) => el("li", {}, el("i", { dataset: { mark }, style: { "--tone": tone }, "aria-hidden": "true" }), word)));
    }

    return { node, say, paint };
  }

  return { createView };
})();
