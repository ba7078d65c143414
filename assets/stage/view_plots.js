// The plots, under the stage: they show the rounds up to the moment that the player shows, like the figures
// beside the round, on axes that hold for all rounds known so far.
//
// Drawing is never urgent: one picture a task, each at most ten times a second, far less often where it is out
// of sight, and after each the page is left alone for longer than the drawing took. plotly.js is asked for while
// the page has nothing else to do, and no later than when the plots come into sight.
SpecViz.plotsView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const SECONDS_BETWEEN_PICTURES = { inSight: 0.1, outOfSight: 2 }; // of one plot
  const NEAR = "200px 0px"; // around the window: as good as in sight
  const REST = 2; // times what the last drawing took
  const CANNOT_LOAD = "The plots could not be drawn, as plotly.js did not load. Their numbers are here all the same, and CSV saves them.";

  /**
   * @param loadPlotly(): Promise of plotly.js
   * @param onRound(number): a round was chosen in a plot
   */
  function createView({ loadPlotly, onRound, now = () => performance.now() / 1000 }) {
    const cards = SpecViz.plotSeries.NAMES.map((name) => ({
      ...SpecViz.plotCard.createCard(name, { onRound }), said: -1, painted: -1, paintedAt: -Infinity, isInSight: false,
    }));
    const note = el("p", { class: "sv-plots-note", role: "status" });
    const grid = el("div", { class: "sv-plots-grid" }, cards.map((card) => card.node));
    const isRoomy = matchMedia("(min-width: 700px)").matches;
    const node = el(
      "details",
      { class: "sv-plots", open: isRoomy },
      el("summary", {}, el("h2", {}, "Plots"), el("span", { class: "sv-muted" }, "up to the round that is shown")),
      note,
      grid,
    );

    let wanted = { state: null, numRounds: 0 };
    let signature = "";
    let revision = 0; // grows whenever what is to be seen may have changed
    let plotly = null;
    let isWarmingUp = false;
    let timer = null;
    let restsUntil = 0;

    for (const card of cards) card.allowPictures(false);
    watchSight();
    watchSize();
    warmUp();
    SpecViz.plotTheme.onChange(node, repaint);

    // ---- what is wanted ----

    function draw(state, frame) {
      const numRounds = frame.totals.rounds;
      const newSignature = [numRounds, state.rounds.length, Boolean(state.finished || state.failed), Boolean(state.identity)].join();
      if (wanted.state === state && signature === newSignature) return;
      wanted = { state, numRounds };
      signature = newSignature;
      revision += 1;
      schedule();
      warmUp();
    }

    function repaint() {
      for (const card of cards) card.painted = -1;
      schedule();
    }

    // ---- when it is drawn ----

    function schedule() {
      if (timer !== null || !node.open || wanted.state === null) return;
      const next = nextCard();
      if (next === null) return;
      const at = Math.max(dueAt(next), restsUntil);
      timer = setTimeout(work, Math.max(0, (at - now()) * 1000));
    }

    /** What has come into sight does not wait for a timer that was set before. */
    function reschedule() {
      clearTimeout(timer);
      timer = null;
      schedule();
    }

    function work() {
      timer = null;
      const begun = now();
      const card = nextCard();
      if (card !== null) drawCard(card);
      restsUntil = now() + REST * (now() - begun);
      schedule();
    }

    const canPaint = (card) => plotly !== null && card.painted !== revision;
    const dueAt = (card) => card.paintedAt + SECONDS_BETWEEN_PICTURES[card.isInSight ? "inSight" : "outOfSight"];

    /** Of those that are not up to date, the one that is due first. */
    function nextCard() {
      const stale = cards.filter((card) => card.said !== revision || canPaint(card));
      return stale.reduce((first, card) => (first === null || dueAt(card) < dueAt(first) ? card : first), null);
    }

    function drawCard(card) {
      if (card.said !== revision) card.say(wanted.state, wanted.numRounds);
      card.said = revision;
      card.paintedAt = now();
      if (!canPaint(card)) return;
      card.paint(plotly);
      card.painted = revision;
    }

    // ---- sight, size, plotly ----

    function watchSight() {
      const observer = new IntersectionObserver((entries) => {
        for (const entry of entries) cards.find((card) => card.node === entry.target).isInSight = entry.isIntersecting;
        if (cards.some((card) => card.isInSight)) fetchPlotly();
        reschedule();
      }, { rootMargin: NEAR });
      for (const card of cards) observer.observe(card.node);
      node.addEventListener("toggle", schedule);
    }

    function watchSize() {
      const observer = new ResizeObserver((entries) => {
        for (const entry of entries) cards.find((card) => card.canvas === entry.target).painted = -1;
        schedule();
      });
      for (const card of cards) observer.observe(card.canvas);
    }

    const isRunning = () => Boolean(wanted.state && wanted.state.run && !wanted.state.finished && !wanted.state.failed);

    /** Before a run or after it, so that none of its time is taken; folded plots cost nobody anything. */
    function warmUp() {
      if (isWarmingUp || node.dataset.plotly) return;
      isWarmingUp = true;
      whenIdle(() => {
        isWarmingUp = false;
        if (node.open && !isRunning()) fetchPlotly();
      });
    }

    /** After the page has been painted, never before. */
    function fetchPlotly() {
      if (plotly !== null || node.dataset.plotly === "loading") return;
      const isRetry = node.dataset.plotly === "failed"; // then the line that says so stays until it is no longer true
      setData(node, "plotly", "loading");
      if (!isRetry) setText(note, cards.some((card) => card.isInSight) ? "Loading the plots" : "");
      requestAnimationFrame(() => setTimeout(() => loadPlotly().then(begin, fail)));
    }

    function begin(library) {
      if (!library) return fail();
      plotly = library;
      setData(node, "plotly", "ready");
      setText(note, "");
      for (const card of cards) card.allowPictures(true);
      return schedule();
    }

    function fail() {
      setData(node, "plotly", "failed");
      setText(note, CANNOT_LOAD);
    }

    return { node, draw };
  }

  /** Once the page has loaded and has nothing else to do. */
  function whenIdle(act) {
    const wait = () => (window.requestIdleCallback ? requestIdleCallback(act) : setTimeout(act, 300));
    if (document.readyState === "complete") wait();
    else window.addEventListener("load", wait, { once: true });
  }

  return { createView };
})();
