// All runs of the tab: the map run, the timed runs on the same prompt, and those side by side. Events in, state out; no DOM.
//
// A series of runs comes as one stream: {"type": "series", name, roles, pair}, and before each run
// {"type": "part", role}; between two of these are the events of one trace.
SpecViz.exitBench = (() => {
  const { reducer } = SpecViz;
  const SERIES = { PAIR: "pair", REAL: "real", SWEEP: "sweep", BESIDE: "beside" };

  function emptyBench() {
    return { kind: "recording", series: null, awaited: [], current: null, map: null, timed: [], sweep: [], beside: [] };
  }

  /** One run of the bench; `lines` are its events as they came, `kind` is "live" or "recording". */
  function createPart(role, kind) {
    return { role, kind, state: reducer.emptyState(), lines: [] };
  }

  function take(bench, event, line = null) {
    if (event.type === "series") return beginSeries(bench, event);
    if (event.type === "part") return beginPart(bench, event.role);
    if (bench.current === null) return bench;
    reducer.reduce(bench.current.state, event);
    bench.current.lines.push(line ?? JSON.stringify(event));
    return bench;
  }

  /** A new map begins everything anew: whatever else there is belongs to its prompt. */
  function beginSeries(bench, { name, roles, pair }) {
    if (name === SERIES.PAIR) Object.assign(bench, emptyBench(), { kind: bench.kind });
    if (name === SERIES.BESIDE) bench.beside = [];
    if (name === SERIES.SWEEP) bench.sweep = [];
    bench.series = { name, roles, pair };
    bench.awaited = [...roles];
    bench.current = null;
    return bench;
  }

  function beginPart(bench, role) {
    const part = createPart(role, bench.kind);
    bench.awaited = bench.awaited.slice(bench.awaited.indexOf(role) + 1);
    bench.current = part;
    if (bench.series && bench.series.name === SERIES.BESIDE) bench.beside.push(part);
    else if (bench.series && bench.series.name === SERIES.SWEEP) bench.sweep.push(part);
    else if (role === "map") bench.map = part;
    else bench.timed.push(part);
    return bench;
  }

  /** Every run that has begun, the map first. */
  function partsOf(bench) {
    return [bench.map, ...bench.timed, ...bench.sweep, ...bench.beside].filter((part) => part && part.state.run);
  }

  // ---- what the views ask ----

  const numLayersOf = (state) => state.run.target.num_layers;
  const exitInfoOf = (state) => (state && state.run && state.run.early_exit) || null;

  /** The readings of a map run, token by token. */
  function mapsOf(state) {
    return state.rounds.map((round) => round.event.map).filter(Boolean);
  }

  /** The layer after which each token of a timed run left. */
  function exitLayersOf(state) {
    return state.rounds.map(({ event }) => (event.exit ? event.exit.layer : numLayersOf(state)));
  }

  /** Where two texts part: the index of the first token that differs; null while none does. */
  function firstDifference(own, full) {
    const length = Math.min(own.length, full.length);
    for (let index = 0; index < length; index += 1) if (own[index].id !== full[index].id) return index;
    return own.length > full.length ? length : null;
  }

  const numSameOf = (own, full) => own.filter((token, index) => full[index] && full[index].id === token.id).length;

  return { SERIES, emptyBench, take, partsOf, numLayersOf, exitInfoOf, mapsOf, exitLayersOf, firstDifference, numSameOf };
})();
