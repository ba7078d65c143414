// The board of the Early exit tab: takes the events of its runs in, and lets the views draw them. It knows nothing of
// where they come from; without somebody to run anything (`run`), what could be run is not offered.
SpecViz.createBoard = (root, { css = "", loadPlotly = null, run = null, makePage = null } = {}) => {
  const { el, setData, setText } = SpecViz.dom;
  const { exitBench } = SpecViz;
  const { DRAFTERS } = SpecViz.vocabulary;
  const { SERIES } = exitBench;
  const ROLE_WORDS = {
    map: "Map run", timed: "Timed run", sweep: "Sweep", plain: "Plain decoding", early_exit: "Early exit",
    self_speculation: "Self-speculation", drafted: "Draft speculation",
  };

  let bench = exitBench.emptyBench();
  let source = { kind: "recording", phase: "empty", note: "" };
  let chosenLayer = null; // for self-speculation, by hand
  let isDirty = false;
  const simulation = SpecViz.exitSimulation.createSimulation();

  const badge = el("span", { class: "sv-badge" });
  const title = el("span", { class: "sv-source-title" });
  const details = el("span", { class: "sv-source-details" });
  const prompt = el("p", { class: "sv-board-prompt" });
  const status = el("p", { class: "sv-status", role: "status" });
  const rule = SpecViz.ruleView.createView({ simulation, onChoose: choose, onRun: start });
  const map = SpecViz.mapView.createView({ simulation });
  const timed = SpecViz.timedView.createView();
  const tradeoff = SpecViz.tradeoffView.createView({ simulation, loadPlotly, onChoose: choose, onRun: () => start("sweep") });
  const beside = SpecViz.besideView.createView({ onRun: () => start("beside"), onLayer: (layer) => { chosenLayer = layer; } });
  const saving = SpecViz.boardSaving.createView({ look: () => exitBench.partsOf(bench), makePage });
  const full = el("button", { class: "sv-button sv-full", type: "button", "aria-label": "Full screen", title: "Full screen", onClick: fullScreen }, SpecViz.dom.icon("full"));
  const node = el(
    "div",
    { class: "sv-stage sv-board", role: "group", "aria-label": "Early exit, token by layer", tabindex: "-1" },
    css ? el("style", {}, css) : null,
    el("header", { class: "sv-source" }, el("p", { class: "sv-source-line" }, badge, title, details), status, full, prompt),
    rule.node,
    map.node,
    timed.node,
    tradeoff.node,
    beside.node,
    saving.node,
  );
  root.replaceChildren(node);
  SpecViz.glossaryTips.listen(node);

  // ---- taking events in ----

  /** Whatever comes next is of this kind, "live" or "recording". */
  function begin(kind) {
    source = { kind, phase: kind === "live" ? "running" : "recording", note: "" };
    bench.kind = kind;
    if (kind === "live") bringIntoView();
  }

  function take(events, lines = []) {
    events.forEach((event, index) => exitBench.take(bench, event, lines[index]));
    if (events.length > 0) source.note = source.phase === "running" ? "" : source.note;
    follow();
    drawSoon();
  }

  function follow() {
    const state = bench.map ? bench.map.state : null;
    const isNew = Boolean(state && state.run) && simulation.rule === null;
    simulation.follow(state);
    if (isNew && source.kind === "recording") simulation.adopt(bench.timed.length > 0 && bench.timed[0].state.run ? bench.timed[0].state : state);
  }

  function end() {
    source = { ...source, phase: source.phase === "error" ? "error" : "done" };
    drawSoon();
  }

  function setStatus(phase, note) {
    source = { ...source, phase, note };
    if (phase === "error") bringIntoView();
    drawSoon();
  }

  /** On a phone the board lies below what was asked: who pressed Run should see what comes of it. */
  function bringIntoView() {
    const { top } = node.getBoundingClientRect();
    if (top > 0.8 * window.innerHeight) node.scrollIntoView({ block: "start" });
  }

  // ---- what a reader does ----

  function choose(changes) {
    simulation.choose(changes);
    drawSoon();
  }

  /** Everything that decides a run on the same prompt: as the map run had it, with the rule of now. */
  function start(name) {
    if (run === null || bench.map === null || isBusy()) return;
    const { prompt: asked, settings, early_exit: info } = bench.map.state.run;
    run({
      series: name, pair: bench.series ? bench.series.pair : null, prompt: asked.text, system: asked.system || "", raw: Boolean(asked.raw), heads: info.heads.kind,
      temperature: settings.temperature, top_k: settings.top_k, top_p: settings.top_p, max_new_tokens: settings.max_new_tokens, seed: settings.seed,
      ...choices(), self_layer: layerForSelf(),
    });
  }

  /** The rule of now, for whoever starts a run elsewhere on the page. */
  function choices() {
    const { measure, threshold } = simulation.chosen;
    const { rule: now } = simulation;
    const isLowest = now === null || now.minLayer <= Math.min(now.numLayers, ...now.exitLayers);
    return { measure, threshold, min_layer: isLowest ? null : now.minLayer };
  }

  const isBusy = () => source.phase === "running" || source.phase === "waiting";

  /** Unless chosen by hand or run already: the layer at which most tokens leave early. */
  function layerForSelf() {
    if (simulation.rule === null || simulation.rule.exitLayers.length === 0) return null;
    const ran = bench.beside.find((part) => part.role === "self_speculation" && part.state.run);
    const known = [chosenLayer, ran ? ran.state.run.drafter.exit_layer : null].find((layer) => simulation.rule.exitLayers.includes(layer));
    if (known !== undefined) return known;
    const counts = simulation.rule.exitLayers.map((layer) => [simulation.exits.filter((exit) => exit === layer).length, layer]);
    return counts.reduce((best, one) => (one[0] > best[0] ? one : best))[1];
  }

  function fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else node.requestFullscreen();
  }

  // ---- drawing ----

  function drawSoon() {
    if (isDirty) return;
    isDirty = true;
    requestAnimationFrame(draw);
  }

  function draw() {
    isDirty = false;
    const begun = performance.now();
    const mapState = bench.map ? bench.map.state : null;
    const newest = bench.timed.at(-1);
    const isBare = run === null && mapState === null; // a timed run alone, in a file
    for (const view of [rule, map, tradeoff, beside]) view.node.hidden = isBare;
    drawSource(mapState || (newest ? newest.state : null));
    rule.draw({ isBusy: isBusy(), canRun: run !== null });
    map.draw(mapState && mapState.run ? mapState : null, bench.map !== null && bench.map.kind === "live");
    timed.draw(newest || null, mapState, { canRun: run !== null });
    tradeoff.draw([...bench.timed, ...bench.sweep].map((part) => part.state), mapState, { isBusy: isBusy(), canRun: run !== null });
    beside.draw(bench.beside, { layers: simulation.rule ? simulation.rule.exitLayers : [], chosenLayer: layerForSelf(), isBusy: isBusy(), canRun: run !== null });
    saving.draw(exitBench.partsOf(bench), isBusy());
    markForReaders();
    setData(node, "drawMs", (performance.now() - begun).toFixed(1));
  }

  function drawSource(state) {
    const isLive = bench.map !== null && bench.map.kind === "live";
    const isMixed = !isLive && exitBench.partsOf(bench).some((part) => part.kind === "live");
    setText(badge, isLive ? "Live runs" : isMixed ? "Recording, and live runs" : "Recording");
    setData(badge, "kind", isLive ? "live" : "recording");
    const started = state ? state.run : null;
    setText(title, started ? started.target.name : "");
    setText(details, started ? describe(started, isLive) : "");
    setText(prompt, started ? started.prompt.text : "");
    setText(status, source.note || statusWords());
    setData(status, "phase", bench.current && bench.current.state.failed && !source.note ? "error" : source.phase);
  }

  function describe({ settings, target, early_exit: info, created }, isLive) {
    const heads = info.heads.kind === "plain" ? "plain heads" : "trained translators";
    const temperature = settings.temperature > 0 ? `temperature ${settings.temperature}` : "greedy";
    const recorded = !isLive && created ? ` · recorded on ${created.slice(0, 10)}` : "";
    return `${heads} · ${temperature} · ${target.dtype} on ${target.device}${recorded}`;
  }

  function statusWords() {
    const failed = bench.current && bench.current.state.failed;
    if (failed) return failed.error;
    if (source.phase === "running" && bench.current) {
      const { role, state } = bench.current;
      const drafter = role === "drafted" && state.run ? ` (${DRAFTERS[state.run.drafter.kind] || state.run.drafter.kind})` : "";
      const numLeft = bench.awaited.length;
      const doing = state.finished ? ", comparing with plain decoding" : state.run ? "" : ", loading the model";
      return `${ROLE_WORDS[role] || role}${drafter}${doing}${numLeft > 0 ? `, then ${numLeft} more` : ""}`;
    }
    if (source.phase === "running") return "Beginning";
    const wasStopped = bench.current && bench.current.state.finished && bench.current.state.finished.reason === "cancelled";
    return wasStopped ? "Stopped" : "";
  }

  function markForReaders() {
    setData(node, "source", source.kind);
    setData(node, "phase", source.phase);
    setData(node, "series", bench.series ? bench.series.name : null);
    setData(node, "map", bench.map ? bench.map.state.rounds.length : 0);
    setData(node, "mapRun", bench.map && bench.map.state.run ? bench.map.state.run.run_id : null);
    setData(node, "timed", bench.timed.length);
    setData(node, "beside", bench.beside.length);
    setData(node, "choices", JSON.stringify(choices()));
  }

  draw();
  return { begin, take, end, setStatus, choose, node, SERIES, get bench() { return bench; } };
};
