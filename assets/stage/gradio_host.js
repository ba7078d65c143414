// The only file that knows Gradio: messages arrive as the component's value, missing events are asked
// of the server. Called inside the component's own function, with what Gradio hands to it.
SpecViz.hostInGradio = (element, props, watch, server, { css, plotly }) => {
  const loadPlotly = SpecViz.plotlySource.fromAddress(plotly);
  const stage = SpecViz.createStage(element.querySelector(".sv-root"), { css, loadPlotly, onRest: noteRound });
  const prefersStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const ended = new Set(); // a last message comes twice
  let shown = ""; // the recording on show, where it has a name
  let isPresenting = false; // not the viewer chooses the round now, so the address stays as it is

  const inbox = SpecViz.protocol.createInbox({
    onEvents(header, events, lines) {
      if (events[0].type === "run_started") stage.begin(header.source);
      stage.take(events, lines);
    },
    onHeader(header) {
      if (header.error && header.refused) stage.refuse(header.refused, header.error);
      else if (header.error) stage.setStatus("error", header.error);
      else if (header.note) stage.setStatus("waiting", header.note);
      if (header.forget) SpecViz.address.write(Object.fromEntries(header.forget.split("&").map((name) => [name, null])));
      if (header.done) finish(header);
    },
    fetchMissing: (runId, fromSeq) => server.missing_events_of({ run: runId, from: fromSeq }),
  });

  function finish(header) {
    if (ended.has(header.run)) return;
    ended.add(header.run);
    stage.end();
    if (header.source === "recording") {
      shown = header.recording || "";
      isPresenting = true;
      present();
      isPresenting = false;
    }
  }

  /**
   * A recording starts by itself, unless the viewer prefers stillness: then its first round stands. One that
   * the address names with a round stands at that round.
   */
  function present() {
    const round = Number(SpecViz.address.read(location).round);
    const isThere = Number.isInteger(round) && round > 0 && round <= Number(stage.node.dataset.rounds);
    if (isThere && shown && isWhatTheAddressNames()) stage.commands.scrub(round);
    else if (prefersStill) stage.commands.roundForward();
    else stage.play();
  }

  /** False while the first recording stands where a link's own is still to come. */
  function isWhatTheAddressNames() {
    const { recording: linked } = SpecViz.address.read(location);
    return !linked || linked === shown;
  }

  /** The round that a viewer rests at, for a link to it. */
  function noteRound(round) {
    if (ended.size > 0 && !isPresenting && isWhatTheAddressNames()) SpecViz.address.write({ round: round > 0 ? round : null });
  }

  function receive() {
    if (props.value) inbox.receive(props.value);
  }

  watch("value", receive);
  receive();
};
