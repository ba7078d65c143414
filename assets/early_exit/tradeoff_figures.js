// The trade-off as Plotly figures: quality and speed against the layers run for a token. Pure; numbers and our own words only.
SpecViz.tradeoffFigures = (() => {
  const { thresholdText } = SpecViz.exitWords;
  const LABELLED = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]; // thresholds that the curve names, where there is room
  const ROOM = 1.6; // layers between two names

  /**
   * @param curve [{threshold, meanLayers, agreement, ...}] simulated, "never" last
   * @param now the outcome at the rule's own threshold
   * @param points [{threshold, measure (our word for it), meanLayers, sameShare, numSame, numCompared, speedup}] measured
   */
  function qualityFigure({ curve, now, points, numLayers, theme }) {
    const known = curve.filter((one) => one.meanLayers !== null);
    const named = spaced(known.filter((one) => LABELLED.includes(one.threshold)));
    const at = (x, y, more) => ({ type: "scatter", mode: "markers", x, y, cliponaxis: false, ...more });
    const measured = points.filter((point) => point.meanLayers !== null && point.sameShare !== null);
    return {
      data: [
        { type: "scatter", mode: "lines", x: known.map((one) => one.meanLayers), y: known.map((one) => one.agreement), line: { color: theme.target, width: 0.19 * theme.size, shape: "linear" }, ...hover(known.map((one) => `threshold ${thresholdText(one.threshold)}: ${one.meanLayers.toFixed(1)} layers, ${one.numSame} / ${one.numTokens} (simulated)`)) },
        at(named.map((one) => one.meanLayers), named.map((one) => one.agreement), { mode: "markers+text", text: named.map((one) => thresholdText(one.threshold)), textposition: "bottom right", textfont: { size: 0.9 * theme.size, color: theme.muted }, marker: { color: theme.target, size: 0.5 * theme.size }, hoverinfo: "skip" }),
        at(now && now.meanLayers !== null ? [now.meanLayers] : [], now && now.meanLayers !== null ? [now.agreement] : [], { marker: { color: theme.ground, size: 1.05 * theme.size, line: { color: theme.target, width: 0.24 * theme.size } }, hoverinfo: "skip" }),
        at(measured.map((point) => point.meanLayers), measured.map((point) => point.sameShare), { marker: { symbol: "diamond", color: theme.measured, size: 0.95 * theme.size, line: { color: theme.ground, width: 1 } }, ...hover(measured.map((point) => `measured, ${point.measure} ≥ ${thresholdText(point.threshold)}: ${point.meanLayers.toFixed(1)} layers, ${point.numSame} / ${point.numCompared} the same`)) }),
      ],
      xaxis: layerAxis(known, points, numLayers),
      yaxis: { range: [0, 1.06], tickvals: [0, 0.25, 0.5, 0.75, 1], ticktext: ["0", "25%", "50%", "75%", "100%"] },
      key: [
        { mark: "line", tone: theme.target, word: "simulated, every threshold: same next token" },
        { mark: "ring", tone: theme.target, word: "the rule above" },
        { mark: "diamond", tone: theme.measured, word: "measured runs: same place, own text" },
      ],
    };
  }

  /** A run's speed is told against plain decoding in that same run: one machine, one moment. */
  function speedFigure({ points, numLayers, curve, theme }) {
    const timed = points.filter((point) => point.speedup !== null && point.meanLayers !== null).sort((a, b) => a.meanLayers - b.meanLayers);
    const named = spaced(timed);
    const axis = layerAxis(curve.filter((one) => one.meanLayers !== null), points, numLayers);
    const most = Math.max(1, ...timed.map((point) => point.speedup));
    return {
      data: [
        { type: "scatter", mode: "lines", x: axis.range, y: [1, 1], line: { color: theme.ink, width: 0.13 * theme.size, dash: "dash" }, hoverinfo: "skip" },
        { type: "scatter", mode: "lines+markers+text", x: timed.map((point) => point.meanLayers), y: timed.map((point) => point.speedup), text: timed.map((point) => (named.includes(point) ? thresholdText(point.threshold) : "")), textposition: "top center", textfont: { size: 0.9 * theme.size, color: theme.muted }, line: { color: theme.measured, width: 0.1 * theme.size }, marker: { symbol: "diamond", color: theme.measured, size: 0.95 * theme.size, line: { color: theme.ground, width: 1 } }, cliponaxis: false, ...hover(timed.map((point) => `measured, ${point.measure} ≥ ${thresholdText(point.threshold)}: ${point.speedup.toFixed(2)}× plain decoding with ${point.meanLayers.toFixed(1)} layers a token`)) },
      ],
      xaxis: axis,
      yaxis: { range: [0, most * 1.2], rangemode: "tozero", ticksuffix: "×" },
      key: [
        { mark: "diamond", tone: theme.measured, word: timed.length === 0 ? "measured runs: none yet" : "measured runs, with their threshold" },
        { mark: "dash", tone: theme.ink, word: "plain decoding" },
      ],
    };
  }

  /** Those whose names do not run into each other. */
  function spaced(outcomes) {
    const kept = [];
    for (const one of outcomes) if (kept.every((other) => Math.abs(other.meanLayers - one.meanLayers) >= ROOM)) kept.push(one);
    return kept;
  }

  /** From the fewest layers that anything runs to all of them. */
  function layerAxis(curve, points, numLayers) {
    const fewest = Math.min(numLayers - 1, ...curve.map((one) => one.meanLayers), ...points.map((point) => point.meanLayers ?? numLayers));
    return { range: [Math.max(0, Math.floor(fewest) - 1), numLayers + 0.6], nticks: 8 };
  }

  const hover = (texts) => ({ customdata: texts, hovertemplate: "%{customdata}<extra></extra>" });

  function layoutOf({ xaxis, yaxis }, theme) {
    const quiet = { fixedrange: true, zeroline: false, tickfont: { size: theme.size }, automargin: false };
    return {
      showlegend: false, dragmode: false, hovermode: "closest", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 3.6 * theme.size, r: 1.4 * theme.size, t: 1 * theme.size, b: 3.4 * theme.size, pad: 0 },
      font: { family: theme.family, size: theme.size, color: theme.muted },
      hoverlabel: { bgcolor: theme.ground, bordercolor: theme.muted, font: { family: theme.family, size: theme.size, color: theme.ink }, align: "left" },
      xaxis: { ...quiet, showgrid: false, showline: true, linecolor: theme.line, ticks: "outside", tickcolor: theme.line, ticklen: 4, title: { text: "layers run for a token", standoff: 6, font: { size: theme.size } }, ...xaxis },
      yaxis: { ...quiet, gridcolor: theme.line, ticklabelstandoff: 3, ...yaxis },
    };
  }

  return { qualityFigure, speedFigure, layoutOf };
})();
