// The stage: takes events in, keeps state, timeline and player, and lets the views draw one moment.
// It knows nothing of where events come from, so a page without a server can use it too.
// Where there is no way to plotly.js (`loadPlotly`), there are no plots.
SpecViz.createStage = (root, { css = "", loadPlotly = null, onRest = null, now = () => performance.now() } = {}) => {
  const { el, setData, setText } = SpecViz.dom;
  const { reducer, choreography, sentence } = SpecViz;
  const SECONDS_BETWEEN_ANNOUNCEMENTS = 1.5;
  const NARROW = 560; // pixels of stage; the style sheet says the same

  let state = reducer.emptyState();
  let timeline = choreography.createTimeline();
  let player = SpecViz.player.createPlayer(timeline);
  let lines = []; // the run's events as they came, for saving
  let source = { kind: "recording", phase: "empty", note: "", refused: null };
  let lastRoundsAt = null;
  let lastTick = null;
  let animation = null;

  const commands = {
    reset: () => act(() => player.reset()),
    stepBack: () => act(() => player.stepBack()),
    stepForward: () => act(() => player.stepForward()),
    roundBack: () => act(() => player.roundBack()),
    roundForward: () => act(() => player.roundForward()),
    goToEnd: () => act(() => player.goToEnd()),
    toggle: () => act(() => (player.isPlaying ? player.pause() : player.play())),
    scrub: (round) => act(() => player.scrubToRound(round)),
    speed: (value) => act(() => player.setSpeed(value)),
    follow: () => act(() => player.follow()),
    save: saveTrace,
    fullScreen: () => (document.fullscreenElement ? document.exitFullscreen() : node.requestFullscreen()),
  };

  const sourceView = SpecViz.sourceView.createView();
  const turns = SpecViz.turnsView.createView();
  const views = ["textView", "roundView", "proofView", "cachesView", "figuresView", "drafterView"].map((name) => SpecViz[name].createView());
  const plots = loadPlotly ? SpecViz.plotsView.createView({ loadPlotly, onRound: commands.scrub }) : null;
  const transport = SpecViz.transportView.createView(commands);
  const body = el("div", { class: "sv-body" }, views.map((view) => view.node));
  const look = () => ({ state, frame: shownFrame() });
  const inspector = SpecViz.inspectorView.createView({ body, look, onShowRound: commands.scrub, onEmptyHanded: () => node.focus() });
  body.append(inspector.node);
  const announcer = createAnnouncer();
  const node = el(
    "div",
    { class: "sv-stage", role: "group", "aria-label": "Speculative decoding, step by step", tabindex: "-1" },
    css ? el("style", {}, css) : null,
    sourceView.node,
    turns.node,
    body,
    plots ? plots.node : null,
    transport.node,
    announcer.node,
  );
  root.replaceChildren(node);
  new ResizeObserver(placePlayer).observe(node);
  SpecViz.keyboard.listen(node, commands);
  SpecViz.glossaryTips.listen(node);
  const card = SpecViz.tokenCard.listen(node, body, look);

  /** Below everything, and always in sight; in a narrow stage right under the round, where it covers nothing. */
  function placePlayer() {
    const isNarrow = node.clientWidth <= NARROW;
    if (isNarrow === body.contains(transport.node)) return;
    if (isNarrow) body.querySelector(".sv-round").after(transport.node);
    else node.insertBefore(transport.node, announcer.node);
  }

  // ---- taking events in ----

  /** Starts over with a new run; `kind` is "live" or "recording". */
  function begin(kind) {
    const { speed } = player;
    state = reducer.emptyState();
    timeline = choreography.createTimeline();
    player = SpecViz.player.createPlayer(timeline);
    player.setSpeed(speed);
    lines = [];
    inspector.shut();
    card.hide();
    lastRoundsAt = null;
    source = { kind, phase: kind === "live" ? "running" : "recording", note: "", refused: null };
    if (kind === "live") player.startLive();
  }

  function take(events, newLines = []) {
    lines.push(...newLines);
    const numDraftsShown = isPendingShown() ? state.pending.tokens.length : 0;
    let numRounds = 0;
    for (const event of events) {
      reducer.reduce(state, event);
      if (event.type !== "round") continue;
      timeline.append(event);
      numRounds += 1;
    }
    if (numRounds > 0 && player.isLive) noteArrival(numRounds, numDraftsShown);
    draw();
  }

  function noteArrival(numRounds, numDraftsShown) {
    const seconds = now() / 1000;
    player.roundsArrived(numRounds, lastRoundsAt === null ? 1 : seconds - lastRoundsAt, numRounds === 1 ? numDraftsShown : 0);
    lastRoundsAt = seconds;
  }

  /** No more events will come. */
  function end() {
    if (player.isLive) player.endLive();
    if (!source.refused || source.refused === "link") state.isWhole = state.run !== null;
    source = { ...source, phase: source.phase === "error" ? "error" : "done" };
    draw();
  }

  function setStatus(phase, note) {
    source = { ...source, phase, note, refused: null };
    draw();
  }

  /** What was asked for is not shown, and why; `what` is a name of `vocabulary.REFUSALS`. */
  function refuse(what, note) {
    source = { ...source, phase: "error", note, refused: what };
    if (SpecViz.vocabulary.REFUSALS[what].isPaused && player.isPlaying) player.pause();
    draw();
  }

  // ---- one moment, drawn ----

  const isPendingShown = () => Boolean(state.pending && player.isFollowing && player.isAtEnd && !player.isTooQuickToAct);

  const sentenceOf = (event) => (event.exit ? sentence.ofExit(event, state.run.target.num_layers) : sentence.ofRound(event));

  /** Everything the views need to know about the moment that is shown; it follows from state and moment alone. */
  function frameAt(moment) {
    const { roundIndex, beat, beats } = timeline.locate(moment);
    const current = roundIndex < 0 ? null : state.rounds[roundIndex];
    const before = roundIndex > 0 ? state.rounds[roundIndex - 1] : null;
    const progress = current ? choreography.progressAt(beats, beat) : null;
    const isOver = Boolean(progress && progress.joined);
    const said = current ? sentenceOf(current.event) : sentence.ofStart(state);
    const frame = {
      roundIndex,
      round: current,
      progress,
      isOver,
      numTokens: !current ? state.startTokens : isOver ? current.textEnd : current.textStart,
      newFrom: isOver ? current.textStart : Infinity,
      totals: isOver ? current.totals : before ? before.totals : reducer.NO_TOTALS,
      sentence: !current || isOver ? said : phaseSentence(progress.phase, current.event),
      spoken: said,
      runWords: SpecViz.vocabulary.RUNS[source.kind],
      pending: null,
    };
    return { ...frame, cacheFrame: frame };
  }

  /** A round whose drafts are being drawn: over the picture of the round before. */
  function pendingFrame() {
    const frame = frameAt(timeline.last);
    const drafted = state.pending.tokens.filter(Boolean).length;
    const progress = { phase: "draft", drafted, verified: false, judged: 0, rolledBack: false, landed: false, joined: false };
    return { ...frame, pending: state.pending, progress, newFrom: Infinity, sentence: phaseSentence("draft") };
  }

  function phaseSentence(phase, event = null) {
    const { PHASES, EMPTY_PHASES } = SpecViz.vocabulary;
    const isEmpty = event !== null && reducer.draftOf(event).length === 0;
    return `${sentence.capitalized((isEmpty && EMPTY_PHASES[phase]) || PHASES[phase].means)}.`;
  }

  const shownFrame = () => (isPendingShown() ? pendingFrame() : frameAt(player.moment));

  function draw() {
    const frame = shownFrame();
    sourceView.draw(state, source);
    turns.draw(state);
    for (const view of views) view.draw(state, frame);
    inspector.draw();
    if (plots) plots.draw(state, frame);
    transport.draw(state, frame, player);
    announcer.say(frame.isOver || !frame.round ? frame.spoken : null);
    markForReaders(frame);
    keepTicking();
  }

  /** What tests and style sheets can rely on. */
  function markForReaders(frame) {
    setData(node, "source", source.kind);
    setData(node, "phase", source.phase);
    setData(node, "player", player.isFollowing ? "following" : player.isPlaying ? "playing" : "paused");
    setData(node, "pace", player.isFollowing && player.isTooQuickToAct ? "quick" : null);
    setData(node, "round", frame.roundIndex + 1);
    setData(node, "rounds", state.rounds.length);
    setData(node, "moment", player.moment);
    setData(node, "moments", timeline.last);
    setData(node, "beat", frame.progress ? frame.progress.phase : "start");
    setData(node, "run", state.run ? state.run.run_id : null);
    setData(node, "reason", state.finished ? state.finished.reason : null);
  }

  // ---- time ----

  function act(change) {
    change();
    draw();
    if (onRest && !player.isPlaying && !player.isFollowing) onRest(timeline.locate(player.moment).roundIndex + 1);
  }

  function keepTicking() {
    if (player.isPlaying && animation === null) {
      lastTick = now();
      animation = requestAnimationFrame(tick);
    }
  }

  function tick() {
    animation = null;
    const time = now();
    const changed = player.advance(Math.min(0.25, (time - lastTick) / 1000));
    lastTick = time;
    if (changed || !player.isPlaying) draw();
    if (player.isPlaying && animation === null) animation = requestAnimationFrame(tick);
  }

  // ---- doors ----

  function saveTrace() {
    if (!state.run) return;
    const file = new Blob([lines.map((line) => `${line}\n`).join("")], { type: "application/x-ndjson" });
    const link = el("a", { href: URL.createObjectURL(file), download: `specviz-${state.run.run_id}.jsonl` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  /** One sentence a round for screen readers, and never a flood. */
  function createAnnouncer() {
    const region = el("p", { class: "sv-hidden", "aria-live": "polite" });
    let lastSaid = -Infinity;
    let timer = null;
    let waiting = "";
    function speak() {
      timer = null;
      lastSaid = now() / 1000;
      setText(region, waiting);
    }
    function say(words) {
      if (words === null || words === waiting) return;
      waiting = words;
      const wait = SECONDS_BETWEEN_ANNOUNCEMENTS - (now() / 1000 - lastSaid);
      if (timer === null) timer = setTimeout(speak, Math.max(0, wait * 1000));
    }
    return { node: region, say };
  }

  draw();
  return { begin, take, end, setStatus, refuse, commands, play: () => act(() => player.play()), node };
};
