// The host of a board without a server: its runs, plotly.js and everything else are in the file itself.
SpecViz.hostBoardInFile = (document) => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const events = JSON.parse(document.getElementById("trace").textContent);
  const loadPlotly = SpecViz.plotlySource.fromPage(document.getElementById("plotly"));
  const board = SpecViz.createBoard(document.getElementById("stage"), { loadPlotly });

  const follow = () => SpecViz.dom.setData(board.node, "theme", dark.matches ? "dark" : "light");
  dark.addEventListener("change", follow);
  follow();

  board.begin("recording");
  board.take(events);
  board.end();
};
