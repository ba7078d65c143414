// The messages of a run: a header line {"run", "seq", "done", ...} and one event a line.
//
// They may come twice, and one may be missing: events are taken in by their number, once, in order;
// what is missing is asked for.
SpecViz.protocol = (() => {
  function parse(text) {
    const lines = text.split("\n").filter((line) => line !== "");
    if (lines.length === 0) return null;
    return { header: JSON.parse(lines[0]), lines: lines.slice(1) };
  }

  /**
   * @param onHeader(header): each message's header, also of messages without events
   * @param onEvents(header, events, lines): the next events of a run, in order, each exactly once
   * @param fetchMissing(runId, fromSeq): Promise of a message with the events from `fromSeq` on
   */
  function createInbox({ onHeader, onEvents, fetchMissing }) {
    const finishedWith = new Set(); // runs that another run has replaced
    let runId = null;
    let nextSeq = 0;
    let held = []; // messages that wait for missing events
    let isFetching = false;

    function receive(text) {
      const message = parse(text);
      if (message === null || finishedWith.has(message.header.run)) return;
      if (message.header.run !== runId) turnTo(message.header.run);
      take(message);
    }

    function turnTo(newRunId) {
      if (runId !== null) finishedWith.add(runId);
      runId = newRunId;
      nextSeq = 0;
      held = [];
      isFetching = false;
    }

    function take(message) {
      if (message.header.seq > nextSeq || isFetching) {
        held.push(message);
        askForMissing();
        return;
      }
      const lines = message.lines.slice(nextSeq - message.header.seq);
      nextSeq += lines.length;
      if (lines.length > 0) onEvents(message.header, lines.map((line) => JSON.parse(line)), lines);
      onHeader(message.header);
    }

    function askForMissing() {
      if (isFetching) return;
      isFetching = true;
      const askedFor = runId;
      const resume = (text) => {
        if (askedFor !== runId) return;
        isFetching = false;
        const message = text ? parse(text) : null;
        if (message) take(message);
        else if (held.length > 0) nextSeq = held[0].header.seq; // the server no longer has them
        const waiting = held;
        held = [];
        waiting.forEach(take);
      };
      fetchMissing(askedFor, nextSeq).then(resume, () => resume(null));
    }

    return { receive };
  }

  return { parse, createInbox };
})();
