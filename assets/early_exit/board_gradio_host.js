// The only file of the board that knows Gradio. Messages arrive as the component's value; the recorded runs are asked of the
// server when the tab is first opened, so that nobody else pays for them.
SpecViz.hostBoardInGradio = (element, props, watch, server, trigger, { css, plotly }) => {
  const loadPlotly = SpecViz.plotlySource.fromAddress(plotly);
  const ended = new Set(); // a last message comes twice
  const board = SpecViz.createBoard(element.querySelector(".sv-root"), {
    css, loadPlotly, run: (request) => trigger("run_board", request), makePage: (parts) => server.page_of(parts),
  });
  let begun = null; // the stream whose source was announced

  const inbox = SpecViz.protocol.createInbox({
    onEvents(header, events, lines) {
      if (begun !== header.run) board.begin(header.source);
      begun = header.run;
      board.take(events, lines);
    },
    onHeader(header) {
      if (header.error) board.setStatus("error", header.error);
      else if (header.note) board.setStatus("waiting", header.note);
      if (!header.done || ended.has(header.run)) return;
      ended.add(header.run);
      board.end();
    },
    fetchMissing: (runId, fromSeq) => server.missing_events_of({ run: runId, from: fromSeq }),
  });

  function receive() {
    if (props.value) inbox.receive(props.value);
  }

  /** Unless a run was started before they came. */
  async function showRecorded() {
    const recorded = await server.recorded_runs({});
    if (recorded && !props.value) inbox.receive(recorded);
  }

  watch("value", receive);
  if (props.value) receive();
  else showRecorded();
};
