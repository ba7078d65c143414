// Saving a plot: its picture as PNG or SVG, its numbers as CSV.
SpecViz.plotSave = (() => {
  const { el } = SpecViz.dom;
  const SIZE = { width: 960, height: 560 };
  const LEGEND_DASH = { bar: "solid", dot: "solid", line: "solid", dash: "dash", dots: "dot" };

  /** Hands `content` to the visitor as a file. */
  function download(name, content, type) {
    const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  /**
   * A figure as a picture that stands alone: with its title, its denominator and its key inside.
   * @param format "png" or "svg"
   * @returns Promise of the picture's content
   */
  async function picture(Plotly, { data, layout, key }, words, theme, format) {
    const axis = (own, title) => ({ ...own, title: { text: title, standoff: 10, font: { size: theme.size } }, automargin: true });
    const spec = {
      data: [...data.map((trace) => ({ ...trace, showlegend: false })), ...key.map((entry) => legendTrace(entry, theme))],
      layout: {
        ...layout, ...SIZE, paper_bgcolor: theme.ground, showlegend: true, hovermode: false,
        title: {
          text: words.title, x: 0.02, xanchor: "left", y: 0.96, yanchor: "top", font: { size: 1.5 * theme.size, color: theme.ink, weight: 600 },
          subtitle: { text: `${words.of} · ${words.source}`, font: { size: 1.1 * theme.size, color: theme.muted } },
        },
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: theme.ink }, traceorder: "normal" },
        margin: { l: 70, r: 30, t: 118, b: 60 },
        xaxis: axis(layout.xaxis, words.x), yaxis: axis(layout.yaxis, words.y),
      },
    };
    const content = await Plotly.toImage(spec, { format, ...SIZE, scale: format === "png" ? 2 : 1, imageDataOnly: true });
    return format === "png" ? Uint8Array.from(atob(content), (char) => char.charCodeAt(0)) : content;
  }

  function legendTrace({ mark, tone, word }, theme) {
    const isPoint = mark === "dot" || mark === "bar" || mark === "none";
    return {
      type: "scatter", mode: isPoint ? "markers" : "lines", x: [null], y: [null], name: word, showlegend: true,
      marker: { color: mark === "none" ? "rgba(0,0,0,0)" : tone, symbol: mark === "bar" ? "square" : "circle", size: 0.8 * theme.size },
      line: { color: tone, dash: LEGEND_DASH[mark], width: 0.19 * theme.size },
    };
  }

  return { download, picture };
})();
