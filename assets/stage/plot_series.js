// The six plots as tables: what is drawn, said and saved are the same numbers. Pure: state in, tables out.
//
// A row of a plot over rounds covers a span of them: one round in a saved file, several where a run has
// more rounds than a plot has room for. Sums of a span are differences of the running totals, so every
// number is the reducer's. A ratio with nothing in its denominator is null.
SpecViz.plotSeries = (() => {
  const { NO_TOTALS, draftOf } = SpecViz.reducer;
  const { figuresOf, ratio } = SpecViz.figures;
  const SECONDS = ["draftSeconds", "verifySeconds", "otherSeconds"];

  const COLUMNS = {
    acceptance: ["round", "accepted", "judged", "accepted_per_judged", "accepted_so_far", "judged_so_far", "alpha"],
    positions: ["position", "accepted", "judged", "conditional_acceptance"],
    speed: ["round", "committed_so_far", "seconds_so_far", "tokens_per_second", "plain_tokens_per_second"],
    memory: ["round", "target_bytes_at_peak", "target_bytes_after", "draft_bytes_at_peak", "draft_bytes_after"],
    time: ["round", "draft_seconds", "verify_seconds", "other_seconds"],
    sizes: ["tokens_in_round", "rounds"],
  };

  const ROWS = {
    acceptance: (state, spans) => spans.map((span) => acceptanceRow(state, span)),
    positions: (state, spans) => positionRows(state, lastOf(spans)),
    speed: (state, spans) => spans.map((span) => speedRow(state, span)),
    memory: (state, spans) => spans.map((span) => memoryRow(state, span)),
    time: (state, spans) => spans.map((span) => timeRow(state, span)),
    sizes: (state, spans) => sizeRows(state, lastOf(spans)),
  };

  /**
   * @param numRounds: the rounds that count, from the first on
   * @param roundsPerRow: how many rounds a row covers
   * @returns {{name, columns, rows}} rows are objects by column name; those over rounds also hold `from`,
   *   the first round they cover (`round` is the last)
   */
  function tableOf(name, state, numRounds = state.rounds.length, roundsPerRow = 1) {
    return { name, columns: COLUMNS[name], rows: ROWS[name](state, spansOf(numRounds, roundsPerRow)) };
  }

  /** [[start, end), ...]: all of `numRounds`, in order; the last one may be shorter. */
  function spansOf(numRounds, roundsPerRow) {
    const spans = [];
    for (let start = 0; start < numRounds; start += roundsPerRow) spans.push([start, Math.min(start + roundsPerRow, numRounds)]);
    return spans;
  }

  const lastOf = (spans) => (spans.length === 0 ? 0 : spans[spans.length - 1][1]);
  const totalsAfter = (state, numRounds) => (numRounds === 0 ? NO_TOTALS : state.rounds[numRounds - 1].totals);
  const roundsOf = (state, [start, end]) => ({ from: state.rounds[start].number, round: state.rounds[end - 1].number });
  const secondsIn = (totals) => SECONDS.reduce((sum, part) => sum + totals[part], 0);

  function acceptanceRow(state, span) {
    const before = totalsAfter(state, span[0]);
    const totals = totalsAfter(state, span[1]);
    const { judged: judgedSoFar, alpha } = figuresOf(totals);
    const accepted = totals.accepted - before.accepted;
    const judged = judgedSoFar - before.accepted - before.rejected;
    return {
      ...roundsOf(state, span), accepted, judged, accepted_per_judged: ratio(accepted, judged),
      accepted_so_far: totals.accepted, judged_so_far: judgedSoFar, alpha,
    };
  }

  function positionRows(state, numRounds) {
    const rows = [];
    for (const { event } of state.rounds.slice(0, numRounds)) {
      draftOf(event).forEach(({ status }, index) => {
        rows[index] ??= { position: index + 1, accepted: 0, judged: 0, conditional_acceptance: null };
        if (status === "accepted") rows[index].accepted += 1;
        if (status === "accepted" || status === "rejected") rows[index].judged += 1;
      });
    }
    for (const row of rows) row.conditional_acceptance = ratio(row.accepted, row.judged);
    return rows;
  }

  function speedRow(state, span) {
    const totals = totalsAfter(state, span[1]);
    return {
      ...roundsOf(state, span), committed_so_far: totals.committed, seconds_so_far: totals.isTimed ? secondsIn(totals) : null,
      tokens_per_second: figuresOf(totals).tokensPerSecond, plain_tokens_per_second: plainSpeed(state),
    };
  }

  /** What plain decoding made in the same run, or null: never estimated. */
  function plainSpeed(state) {
    return (state.identity && state.identity.plain_tokens_per_second) || null;
  }

  function memoryRow(state, span) {
    const caches = state.rounds.slice(...span).map(({ event }) => event.cache || {});
    const target = cacheBytes(caches.map((cache) => cache.target));
    const draft = cacheBytes(caches.map((cache) => cache.draft));
    return {
      ...roundsOf(state, span), target_bytes_at_peak: target.peak, target_bytes_after: target.after,
      draft_bytes_at_peak: draft.peak, draft_bytes_after: draft.after,
    };
  }

  /** Bytes after a round are recorded; those at its peak follow from the positions, at the same size each. */
  function cacheBytes(uses) {
    const peaks = uses.map((use) => (use && use.after > 0 ? (use.bytes / use.after) * use.peak : null)).filter((bytes) => bytes !== null);
    const last = uses[uses.length - 1];
    return { peak: peaks.length > 0 ? Math.max(...peaks) : null, after: last ? last.bytes : null };
  }

  /** Seconds of a round; the mean where a row covers several. */
  function timeRow(state, span) {
    const before = totalsAfter(state, span[0]);
    const totals = totalsAfter(state, span[1]);
    const [draft, verify, other] = SECONDS.map((part) => (totals.isTimed ? (totals[part] - before[part]) / (span[1] - span[0]) : null));
    return { ...roundsOf(state, span), draft_seconds: draft, verify_seconds: verify, other_seconds: other };
  }

  function sizeRows(state, numRounds) {
    const rows = [];
    for (let index = 0; index < numRounds; index += 1) {
      const size = totalsAfter(state, index + 1).committed - totalsAfter(state, index).committed;
      while (rows.length <= size) rows.push({ tokens_in_round: rows.length, rounds: 0 });
      rows[size].rounds += 1;
    }
    return rows;
  }

  /** The most tokens that a round of this run can bring: k + 1, and 1 without a drafter; null when k is not known. */
  function ceilingOf(state) {
    if (!state.run) return null;
    const { num_draft_tokens: k, max_draft_tokens: most } = state.run.settings;
    if (state.run.drafter.kind === "none") return 1;
    if (Number.isInteger(k)) return k + 1;
    return k === "auto" && Number.isInteger(most) ? most + 1 : null;
  }

  /** A table as CSV (RFC 4180): a line of names, then numbers; an empty field is a null. */
  function csvOf({ columns, rows }) {
    const lines = rows.map((row) => columns.map((column) => row[column] ?? "").join(","));
    return [columns.join(","), ...lines, ""].join("\r\n");
  }

  return { NAMES: Object.keys(COLUMNS), tableOf, ceilingOf, plainSpeed, csvOf };
})();
