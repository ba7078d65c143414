// The running figures of a run, as of some round: each one a value with its own denominator.
// A ratio with nothing in its denominator is null, never 0.
SpecViz.figures = (() => {
  const ratio = (numerator, denominator) => (denominator > 0 ? numerator / denominator : null);

  /** Figures from the totals of a round (see reducer). */
  function figuresOf(totals) {
    const judged = totals.accepted + totals.rejected;
    const seconds = totals.isTimed ? totals.draftSeconds + totals.verifySeconds + totals.otherSeconds : 0;
    return {
      judged,
      seconds,
      alpha: ratio(totals.accepted, judged),
      draftAcceptanceRate: ratio(totals.accepted, totals.drafted),
      meanTokensPerRound: ratio(totals.committed, totals.rounds),
      tokensPerSecond: ratio(totals.committed, seconds),
      draftShare: ratio(totals.draftSeconds, seconds),
      verifyShare: ratio(totals.verifySeconds, seconds),
      otherShare: ratio(totals.otherSeconds, seconds),
      meanLayers: totals.layersRun > 0 ? ratio(totals.layersRun, totals.committed) : null,
    };
  }

  const NOISE = 0.05; // by which one measurement of a speedup may be off and nobody wonders

  /** Tokens/s to tell a speedup by: of the run made once more beside plain decoding, in older traces of the run itself. */
  function comparedSpeedOf({ identity, rounds }) {
    if (identity && identity.again_tokens_per_second !== undefined) return identity.again_tokens_per_second;
    return rounds.length === 0 ? null : figuresOf(rounds.at(-1).totals).tokensPerSecond;
  }

  /** The measured speedup over the plain run of the same session, or null: never estimated, and not for plain decoding itself. */
  function speedupOf(state) {
    const plain = state.identity ? state.identity.plain_tokens_per_second : null;
    const own = comparedSpeedOf(state);
    return !plain || own === null || (state.run && state.run.mode === "plain") ? null : own / plain;
  }

  /** "faster", "slower", or too near to tell from one measurement. */
  function verdictOf(speedup) {
    if (Math.abs(speedup - 1) < NOISE) return "as fast";
    return speedup < 1 ? "slower" : "faster";
  }

  function formatRatio(value) {
    return value === null ? "–" : value.toFixed(2);
  }

  function formatSeconds(seconds) {
    if (seconds < 0.0995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
    return seconds < 99.5 ? `${seconds.toFixed(2)} s` : `${Math.round(seconds)} s`;
  }

  function formatBytes(bytes) {
    if (bytes === null || bytes === undefined) return "";
    if (bytes < 1000) return `${bytes} B`;
    if (bytes < 1e6) return `${(bytes / 1e3).toFixed(0)} kB`;
    return bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
  }

  /** A probability as lecture slides write it: .91, and 1.0 and .00 at the ends. */
  function formatProbability(value) {
    if (value === null || value === undefined) return "";
    if (value >= 0.995) return value === 1 ? "1" : ">.99";
    if (value < 0.005) return value === 0 ? "0" : "<.01";
    return value.toFixed(2).slice(1);
  }

  return { ratio, figuresOf, comparedSpeedOf, speedupOf, verdictOf, formatRatio, formatSeconds, formatBytes, formatProbability };
})();
