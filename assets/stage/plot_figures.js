// A plot's table as a Plotly figure: traces, axes and key. Pure; colours and sizes come in as a theme.
// Plotly takes some text for markup, so nothing but numbers and the words of this file goes into a figure.
SpecViz.plotFigures = (() => {
  const { tableOf, ceilingOf, plainSpeed } = SpecViz.plotSeries;
  const MOST_ROWS = 120; // drawn in a plot over rounds; a longer run has several rounds to a row
  const MOST_CHARACTERS = 30; // over the bars of a plot
  const MOST_TICKS = 12; // under the bars of a plot
  const LABEL_SHARE = 0.15; // of a plot's height, for the number over a bar
  const LIVE_EXTENTS = [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]; // where the axis of a growing run ends

  const FIGURES = {
    acceptance: acceptanceFigure, positions: positionsFigure, speed: speedFigure, memory: memoryFigure, time: timeFigure, sizes: sizesFigure,
  };

  /**
   * The figure of a plot after `numRounds` of the rounds that are known; its axes hold for all of them, so
   * that nothing jumps while a recording plays.
   * @param theme {{ink, muted, line, ground, target, targetTint, drafter, drafterTint, verify, other, best, family, size}}
   * @returns {{data, layout, key}} `key`: [{mark: "dot" | "line" | "dash" | "dots" | "bar" | "none", tone, word}]
   */
  function figureOf(name, state, numRounds, theme) {
    const perRow = Math.max(1, Math.ceil(state.rounds.length / MOST_ROWS));
    const rows = tableOf(name, state, numRounds, perRow).rows;
    const all = tableOf(name, state, state.rounds.length, perRow).rows;
    const { data, xaxis, yaxis, key, ...layout } = FIGURES[name]({ state, rows, all, theme, perRow });
    const quiet = { fixedrange: true, zeroline: false, tickfont: { size: theme.size }, automargin: false };
    return {
      data: data.map((trace) => ({ hoverinfo: trace.hovertemplate ? undefined : "skip", ...trace })),
      key,
      layout: {
        showlegend: false, dragmode: false, hovermode: "closest", bargap: 0.12, barmode: "stack",
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        margin: { l: 3.1 * theme.size, r: 0.9 * theme.size, t: 0.9 * theme.size, b: 1.9 * theme.size, pad: 0 },
        font: { family: theme.family, size: theme.size, color: theme.muted },
        hoverlabel: { bgcolor: theme.ground, bordercolor: theme.muted, font: { family: theme.family, size: theme.size, color: theme.ink }, align: "left" },
        xaxis: { ...quiet, showgrid: false, showline: true, linecolor: theme.line, ticks: "outside", tickcolor: theme.line, ticklen: 4, ...xaxis },
        yaxis: { ...quiet, gridcolor: theme.line, nticks: 5, ticklabelstandoff: 3, ...yaxis },
        ...layout,
      },
    };
  }

  // ---- the six ----

  function acceptanceFigure({ state, rows, theme, perRow }) {
    const judged = rows.filter((row) => row.judged > 0);
    const perRound = {
      ...dots(judged.map(middle), judged.map((row) => row.accepted_per_judged), theme.muted, theme),
      ...hover(judged.map((row) => `${roundsText(row)}: ${row.accepted} / ${row.judged}`)),
    };
    const running = rows.filter((row) => row.alpha !== null);
    const alpha = {
      ...line(running.map((row) => row.round), running.map((row) => row.alpha), theme.target, theme),
      ...hover(running.map((row) => `round ${row.round}: α ${row.alpha.toFixed(3)} = ${row.accepted_so_far} / ${row.judged_so_far}`)),
    };
    return {
      data: [perRound, alpha, ending(alpha, theme)],
      xaxis: roundAxis(state), yaxis: { range: [-0.05, 1.08], tickvals: [0, 0.5, 1], ticktext: ["0", ".5", "1"] },
      key: [
        { mark: "dot", tone: theme.muted, word: perRow === 1 ? "one round" : `${perRow} rounds together` },
        { mark: "line", tone: theme.target, word: "all so far: α" },
      ],
    };
  }

  function positionsFigure({ state, rows, all, theme }) {
    const count = Math.max(all.length, 1);
    const isDense = count * Math.max(0, ...all.map((row) => shareText(row).length)) > MOST_CHARACTERS;
    const bars = {
      type: "bar", x: rows.map((row) => row.position), y: rows.map((row) => row.conditional_acceptance),
      marker: { color: theme.target, line: { width: 0 } }, width: 0.62,
      text: rows.map((row) => (row.judged === 0 ? "" : isDense ? String(row.judged) : shareText(row))),
      ...labels(theme),
      ...hover(rows.map((row) => `position ${row.position}: ${row.accepted} accepted / ${row.judged} judged`)),
    };
    return {
      data: [bars],
      xaxis: { range: [0.4, Math.max(count, 3) + 0.6], ...wholeTicks(count) },
      yaxis: { range: [0, 1.2], tickvals: [0, 0.5, 1], ticktext: ["0", ".5", "1"] },
      key: [{ mark: "bar", tone: theme.target, word: isDense ? "share accepted; on it, how many were judged" : "share accepted" }],
    };
  }

  function speedFigure({ state, rows, all, theme }) {
    const timed = rows.filter((row) => row.tokens_per_second !== null);
    const own = {
      ...line(timed.map((row) => row.round), timed.map((row) => row.tokens_per_second), theme.target, theme),
      ...hover(timed.map((row) => `round ${row.round}: ${row.tokens_per_second.toFixed(1)} = ${row.committed_so_far} / ${row.seconds_so_far.toPrecision(3)} s`)),
    };
    const plain = plainSpeed(state);
    const axis = roundAxis(state);
    const data = plain === null ? [] : [{ ...line(axis.range, [plain, plain], theme.ink, theme), line: { color: theme.ink, width: 0.13 * theme.size, dash: "dash" } }];
    const most = mostOf([...all.map((row) => row.tokens_per_second), plain]);
    return {
      data: [...data, own, ending(own, theme)], xaxis: axis, yaxis: { range: [0, most * 1.12], rangemode: "tozero" },
      key: [
        { mark: "line", tone: theme.target, word: "this run" },
        { mark: "dash", tone: theme.ink, word: plain === null ? "plain decoding: not measured" : `plain decoding: ${plain.toFixed(1)}` },
      ],
    };
  }

  function memoryFigure({ state, rows, all, theme }) {
    const unit = unitOf(mostOf(all.flatMap((row) => [row.target_bytes_at_peak, row.draft_bytes_at_peak])));
    const caches = [
      { who: "target", after: "target_bytes_after", peak: "target_bytes_at_peak", tone: theme.target, tint: theme.targetTint, dash: "solid" },
      { who: "drafter", after: "draft_bytes_after", peak: "draft_bytes_at_peak", tone: theme.drafter, tint: theme.drafterTint, dash: "longdash" },
    ].filter(({ after }) => all.some((row) => row[after] !== null));
    const data = caches.flatMap((cache) => bandOf(cache, rows, unit, theme));
    const most = mostOf(all.flatMap((row) => [row.target_bytes_at_peak, row.draft_bytes_at_peak, row.target_bytes_after])) / unit.bytes;
    return {
      data, xaxis: roundAxis(state), yaxis: { range: [0, (most || 1) * 1.12], ticksuffix: ` ${unit.name}` },
      margin: { l: 4.6 * theme.size, r: 0.9 * theme.size, t: 0.9 * theme.size, b: 1.9 * theme.size, pad: 0 },
      key: [
        ...caches.map(({ who, tone, dash }) => ({ mark: dash === "solid" ? "line" : "dash", tone, word: `${who}, after the round` })),
        ...(caches.length > 0 ? [{ mark: "dots", tone: theme.muted, word: "at its peak" }] : []),
      ],
    };
  }

  /** What a cache holds after each round, and a dotted line over it for the peak. */
  function bandOf({ who, after, peak, tone, tint, dash }, rows, unit, theme) {
    const known = rows.filter((row) => row[after] !== null);
    const rounds = known.map((row) => row.round);
    const inUnits = (column) => known.map((row) => (row[column] === null ? null : row[column] / unit.bytes));
    const below = { ...line(rounds, inUnits(after), tone, theme), line: { color: tone, width: 0.17 * theme.size, dash } };
    const above = { ...line(rounds, inUnits(peak), tone, theme), line: { color: theme.muted, width: 0.09 * theme.size, dash: "dot" }, fill: "tonexty", fillcolor: tint };
    const texts = known.map((row) => `round ${row.round}, ${who}: ${inUnit(row[after], unit)} after, ${inUnit(row[peak], unit)} at the peak`);
    return [below, { ...above, ...hover(texts) }, ending(below, theme)];
  }

  function timeFigure({ state, rows, all, theme, perRow }) {
    const longest = mostOf(all.map((row) => row.draft_seconds + row.verify_seconds + row.other_seconds));
    const unit = longest >= 1 ? { seconds: 1, name: "s" } : { seconds: 0.001, name: "ms" };
    const timed = rows.filter((row) => row.draft_seconds !== null);
    const parts = [["draft", "draft_seconds", theme.drafter], ["verify", "verify_seconds", theme.verify], ["other", "other_seconds", theme.other]];
    const data = parts.map(([part, column, tone]) => ({
      type: "bar", x: timed.map(middle), y: timed.map((row) => row[column] / unit.seconds), width: perRow * (all.length > 60 ? 1 : 0.8),
      marker: { color: tone, line: { width: 0 } },
      ...hover(timed.map((row) => `${roundsText(row)}: ${part} ${(row[column] / unit.seconds).toPrecision(3)} ${unit.name}`)),
    }));
    return {
      data, xaxis: roundAxis(state), yaxis: { range: [0, ((longest || 1) / unit.seconds) * 1.08], ticksuffix: ` ${unit.name}` },
      margin: { l: 4.6 * theme.size, r: 0.9 * theme.size, t: 0.9 * theme.size, b: 1.9 * theme.size, pad: 0 },
      key: [
        ...[...parts].reverse().map(([part, , tone]) => ({ mark: "bar", tone, word: part })),
        ...(perRow === 1 ? [] : [{ mark: "none", tone: theme.muted, word: `a bar: mean of ${perRow} rounds` }]),
      ],
    };
  }

  function sizesFigure({ state, rows, all, theme }) {
    const ceiling = ceilingOf(state);
    const shown = rows.filter((row) => row.tokens_in_round > 0 || row.rounds > 0);
    const most = mostOf(all.map((row) => row.rounds));
    const widest = Math.max(ceiling || 0, all.length - 1, 3);
    const top = (most || 1) * 1.4;
    const bars = {
      type: "bar", x: shown.map((row) => row.tokens_in_round), y: shown.map((row) => row.rounds), width: 0.62,
      marker: { color: theme.target, line: { width: 0 } },
      text: shown.map((row) => (row.rounds > 0 ? String(row.rounds) : "")), ...labels(theme),
      ...hover(shown.map((row) => `${row.tokens_in_round} tokens: ${row.rounds} rounds`)),
    };
    return {
      data: [bars], shapes: ceiling === null ? [] : [upright(ceiling, theme, overBar(rows[ceiling]?.rounds, top), top)],
      xaxis: { range: [0.4, widest + 0.7], ...wholeTicks(widest) }, yaxis: { range: [0, top] },
      key: [
        { mark: "bar", tone: theme.target, word: "rounds" },
        ...(ceiling === null ? [] : [{ mark: "dash", tone: theme.ink, word: ceiling === 1 ? "ceiling without a draft: 1" : `ceiling k + 1 = ${ceiling}` }]),
      ],
    };
  }

  // ---- their parts ----

  const wholeTicks = (most) => ({ dtick: Math.ceil(most / MOST_TICKS), tickangle: 0 });
  const middle = (row) => (row.from + row.round) / 2;
  const roundsText = (row) => (row.from === row.round ? `round ${row.round}` : `rounds ${row.from} to ${row.round}`);
  const mostOf = (values) => values.reduce((most, value) => (value > most ? value : most), 0);
  const shareText = (row) => `${row.accepted} / ${row.judged}`;
  const labels = (theme) => ({ textposition: "outside", textangle: 0, constraintext: "none", cliponaxis: false, textfont: { color: theme.ink, size: theme.size } });
  const hover = (texts) => ({ customdata: texts, hovertemplate: "%{customdata}<extra></extra>" });

  function line(x, y, color, theme) {
    return { type: "scatter", mode: "lines", x, y, line: { color, width: 0.19 * theme.size }, connectgaps: false };
  }

  function dots(x, y, color, theme) {
    return { type: "scatter", mode: "markers", x, y, marker: { color, size: 0.42 * theme.size, opacity: 0.75 }, cliponaxis: false };
  }

  /** The end of a line: now. */
  function ending({ x, y, line: { color } }, theme) {
    return { type: "scatter", mode: "markers", x: x.slice(-1), y: y.slice(-1), marker: { color, size: 0.62 * theme.size }, cliponaxis: false };
  }

  const overBar = (height, top) => (height > 0 ? height + LABEL_SHARE * top : 0);

  /** A dashed line, from over the bar that may stand there to the top. */
  function upright(x, theme, from, top) {
    return { type: "line", x0: x, x1: x, y0: from, y1: top, line: { color: theme.ink, width: 0.13 * theme.size, dash: "dash" } };
  }

  function roundAxis(state) {
    const numRounds = state.rounds.length;
    const isGrowing = !state.finished && !state.failed;
    const extent = isGrowing ? (LIVE_EXTENTS.find((size) => size >= numRounds) ?? Math.ceil(numRounds / 256) * 256) : numRounds;
    return { range: [0.5, Math.max(extent, 4) + 0.5], nticks: 7, tickformat: "d" };
  }

  function unitOf(bytes) {
    if (bytes >= 1e9) return { name: "GB", bytes: 1e9 };
    return bytes >= 1e6 ? { name: "MB", bytes: 1e6 } : { name: "kB", bytes: 1e3 };
  }

  const inUnit = (bytes, unit) => (bytes === null ? "not recorded" : `${(bytes / unit.bytes).toPrecision(3)} ${unit.name}`);

  return { figureOf, MOST_ROWS };
})();
