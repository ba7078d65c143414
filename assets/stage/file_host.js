// The host of a page without a server: the run, plotly.js and everything else are in the file itself.
SpecViz.hostInFile = (document) => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const prefersStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const events = JSON.parse(document.getElementById("trace").textContent);
  const loadPlotly = SpecViz.plotlySource.fromPage(document.getElementById("plotly"));
  const stage = SpecViz.createStage(document.getElementById("stage"), { loadPlotly });

  const follow = () => SpecViz.dom.setData(stage.node, "theme", dark.matches ? "dark" : "light");
  dark.addEventListener("change", follow);
  follow();

  stage.begin("recording");
  stage.take(events, events.map((event) => JSON.stringify(event)));
  stage.end();
  if (prefersStill) stage.commands.roundForward();
  else stage.play();
};
