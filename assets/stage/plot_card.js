// One plot on the page: its words, its picture, its key, and the doors to save it.
SpecViz.plotCard = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { tableOf, csvOf } = SpecViz.plotSeries;
  const { PLOTS, sayingOf } = SpecViz.plotWords;
  const { figureOf } = SpecViz.plotFigures;
  const { themeOf } = SpecViz.plotTheme;
  const CONFIG = { displayModeBar: false, responsive: false, doubleClick: false, scrollZoom: false, showTips: false };

  /** @param onRound(number): a round of the plot was clicked */
  function createCard(name, { onRound }) {
    const words = PLOTS[name];
    const value = el("span", { class: "sv-plot-value" });
    const of = el("span", { class: "sv-plot-divided" });
    const canvas = el("div", { class: "sv-plot-canvas", "aria-hidden": "true" });
    const nothing = el("p", { class: "sv-plot-nothing", "aria-hidden": "true" });
    const picture = el("div", { class: "sv-plot-picture", role: "img" }, canvas, nothing);
    const key = el("ul", { class: "sv-plot-key" });
    const saving = ["PNG", "SVG", "CSV"].map((format) =>
      el("button", { class: "sv-plot-button", type: "button", "aria-label": `Save ${words.title} as ${format}`, onClick: () => save(format.toLowerCase()) }, format),
    );
    const node = el(
      "figure",
      { class: "sv-plot", dataset: { plot: name } },
      el(
        "figcaption",
        {},
        el("div", { class: "sv-plot-head" }, el("h3", {}, words.title), value),
        el("p", { class: "sv-plot-of" }, el("span", {}, `${words.of} · ${words.source}`), of),
      ),
      picture,
      el("div", { class: "sv-plot-foot" }, key, el("div", { class: "sv-plot-save" }, saving)),
    );

    let shown = { state: null, numRounds: 0 };
    let plotly = null;
    let isListening = false;

    /** The words and the key of a moment. */
    function say(state, numRounds) {
      shown = { state, numRounds };
      const saying = sayingOf(name, state, numRounds);
      setText(value, saying.value);
      setText(of, saying.of);
      setText(nothing, saying.nothing);
      if (picture.getAttribute("aria-label") !== saying.summary) picture.setAttribute("aria-label", saying.summary);
      setData(node, "rounds", numRounds);
    }

    function figure() {
      return figureOf(name, shown.state, shown.numRounds, themeOf(node));
    }

    /** The picture of the moment that was said last. */
    function paint(Plotly) {
      plotly = Plotly;
      const { clientWidth: width, clientHeight: height } = canvas;
      if (width === 0 || shown.state === null) return;
      const { data, layout, key: entries } = figure();
      drawKey(entries);
      Plotly.react(canvas, data, { ...layout, width, height }, CONFIG);
      listen();
      setData(node, "painted", shown.numRounds);
    }

    function drawKey(entries) {
      const wanted = JSON.stringify(entries);
      if (key.dataset.entries === wanted) return;
      key.dataset.entries = wanted;
      key.replaceChildren(...entries.map(({ mark, tone, word }) => el("li", {}, el("i", { dataset: { mark }, style: { "--tone": tone }, "aria-hidden": "true" }), word)));
    }

    function listen() {
      if (isListening || words.x !== "round") return;
      isListening = true;
      canvas.on("plotly_click", ({ points }) => onRound(Math.round(points[0].x)));
    }

    async function save(format) {
      if (shown.state === null || !shown.state.run) return;
      const file = `specviz-${String(shown.state.run.run_id).replace(/[^\w-]/g, "")}-${name}.${format}`;
      if (format === "csv") SpecViz.plotSave.download(file, csvOf(tableOf(name, shown.state, shown.numRounds)), "text/csv");
      else if (plotly) SpecViz.plotSave.download(file, await SpecViz.plotSave.picture(plotly, figure(), words, themeOf(node), format), format === "png" ? "image/png" : "image/svg+xml");
    }

    return { node, canvas, say, paint, allowPictures: (allowed) => saving.slice(0, 2).forEach((button) => { button.disabled = !allowed; }) };
  }

  return { createCard };
})();
