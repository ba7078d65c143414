// One clock for all rows: how much each run had written when its own clock stood there. Prefill is not in it.
SpecViz.race = (() => {
  /** Seconds of decoding after each round, summed. */
  function clockOf(state) {
    let sum = 0;
    return state.rounds.map(({ event }) => {
      const { draft = 0, verify = 0, other = 0 } = event.seconds || {};
      sum += draft + verify + other;
      return sum;
    });
  }

  /** How many tokens a run had written `seconds` after its first pass began. */
  function tokensAt(state, clock, seconds) {
    let low = 0;
    let high = clock.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (clock[middle] <= seconds) low = middle + 1;
      else high = middle;
    }
    return low === 0 ? state.startTokens : state.rounds[low - 1].textEnd;
  }

  /**
   * A clock that can be let run over finished runs.
   * @param onTick(seconds | null): null where it stands at the end and everything is shown
   */
  function createRace({ onTick, now = () => performance.now() / 1000 }) {
    let startedAt = null;
    let end = 0;

    function start(seconds) {
      const isIdle = startedAt === null;
      startedAt = now();
      end = seconds;
      if (isIdle) requestAnimationFrame(tick);
    }

    function tick() {
      if (startedAt === null) return;
      const seconds = now() - startedAt;
      if (seconds >= end) return stop();
      onTick(seconds);
      requestAnimationFrame(tick);
    }

    function stop() {
      if (startedAt === null) return;
      startedAt = null;
      onTick(null);
    }

    return { start, stop, get isRunning() { return startedAt !== null; } };
  }

  return { clockOf, tokensAt, createRace };
})();
