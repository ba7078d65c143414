// What each plot is called, what it divides by, what it shows right now, and where its numbers come from.
SpecViz.plotWords = (() => {
  const { tableOf, ceilingOf, plainSpeed } = SpecViz.plotSeries;
  const { figuresOf, formatRatio, formatSeconds, formatBytes } = SpecViz.figures;
  const { NO_TOTALS } = SpecViz.reducer;
  const { counted } = SpecViz.sentence;

  const PLOTS = {
    acceptance: { title: "Acceptance per round", of: "accepted / judged tokens", source: "measured", x: "round", y: "accepted / judged" },
    positions: { title: "Acceptance by position", of: "accepted / judged there", source: "measured", x: "position in the draft", y: "accepted / judged" },
    speed: { title: "Tokens per second", of: "tokens / rounds’ seconds", source: "measured", x: "round", y: "tokens / second" },
    memory: { title: "KV memory", of: "bytes", source: "measured, peak derived", x: "round", y: "" },
    time: { title: "Time split", of: "seconds by part", source: "measured", x: "round", y: "" },
    sizes: { title: "Tokens per round", of: "rounds of each size", source: "measured", x: "tokens kept for one target pass", y: "rounds" },
  };

  const SAYINGS = { acceptance: sayAcceptance, positions: sayPositions, speed: saySpeed, memory: sayMemory, time: sayTime, sizes: saySizes };

  /**
   * What a plot shows after `numRounds` rounds, in words.
   * @returns {{value, of, summary, nothing}} the figure of the moment, what it was divided by, all of it as
   *   a sentence, and why there is nothing to see ("" where there is something)
   */
  function sayingOf(name, state, numRounds) {
    if (numRounds === 0) return { value: "–", of: "", summary: "No round is over yet.", nothing: "No round is over yet" };
    const totals = state.rounds[numRounds - 1]?.totals || NO_TOTALS;
    return { value: "–", of: "", nothing: "", ...SAYINGS[name](state, numRounds, totals) };
  }

  const nothingAs = (sentence) => ({ summary: `${sentence}.`, nothing: sentence });
  const after = (numRounds) => `After ${counted(numRounds, "round")}`;

  function sayAcceptance(state, numRounds, totals) {
    const { judged, alpha } = figuresOf(totals);
    if (judged === 0) return nothingAs("Nothing was judged so far");
    return {
      value: `α ${formatRatio(alpha)}`, of: `${totals.accepted} / ${judged}`,
      summary: `${after(numRounds)}, ${totals.accepted} of ${judged} judged draft tokens were accepted: alpha is ${formatRatio(alpha)}.`,
    };
  }

  function sayPositions(state, numRounds) {
    const rows = tableOf("positions", state, numRounds).rows.filter((row) => row.judged > 0);
    if (rows.length === 0) return nothingAs("Nothing was judged so far");
    const first = rows[0];
    const each = rows.map((row) => `position ${row.position}: ${row.accepted} of ${row.judged}`).join("; ");
    return {
      value: formatRatio(first.conditional_acceptance), of: `1st: ${first.accepted} / ${first.judged}`,
      summary: `${after(numRounds)}, accepted of those judged at each position of the draft: ${each}.`,
    };
  }

  function saySpeed(state, numRounds, totals) {
    const { tokensPerSecond, seconds } = figuresOf(totals);
    if (tokensPerSecond === null) return nothingAs("This run recorded no times");
    const plain = plainSpeed(state);
    return {
      value: tokensPerSecond.toFixed(1), of: `${totals.committed} / ${formatSeconds(seconds)}`,
      summary:
        `${after(numRounds)}, ${totals.committed} tokens in ${formatSeconds(seconds)}: ${tokensPerSecond.toFixed(1)} tokens a second; ` +
        `plain decoding: ${plain === null ? "not measured" : plain.toFixed(1)}.`,
    };
  }

  function sayMemory(state, numRounds) {
    const row = tableOf("memory", state, numRounds).rows.at(-1);
    const caches = [["target", row.target_bytes_after, row.target_bytes_at_peak], ["drafter", row.draft_bytes_after, row.draft_bytes_at_peak]];
    const known = caches.filter(([, bytes]) => bytes !== null);
    if (known.length === 0) return nothingAs("This run recorded no caches");
    const each = known.map(([who, bytes, peak]) => `${who} ${formatBytes(bytes)}${peak === null ? "" : `, ${formatBytes(peak)} at the peak of the round`}`);
    return {
      value: formatBytes(known.reduce((sum, [, bytes]) => sum + bytes, 0)),
      of: known.length > 1 ? `${known.map(([, bytes]) => formatBytes(bytes)).join(" + ")}` : known[0][0],
      summary: `${after(numRounds)} the KV caches hold: ${each.join("; ")}.`,
    };
  }

  function sayTime(state, numRounds, totals) {
    const { seconds, draftShare, verifyShare, otherShare } = figuresOf(totals);
    if (seconds === 0) return nothingAs("This run recorded no times");
    const percent = (share) => `${Math.round(100 * share)}%`;
    return {
      value: `mean ${formatSeconds(seconds / totals.rounds)}`, of: `${formatSeconds(seconds)} / ${counted(totals.rounds, "round")}`,
      summary:
        `${after(numRounds)}, a round took ${formatSeconds(seconds / totals.rounds)} on average: ` +
        `${percent(draftShare)} drafting, ${percent(verifyShare)} verifying, ${percent(otherShare)} other.`,
    };
  }

  function saySizes(state, numRounds, totals) {
    const mean = formatRatio(figuresOf(totals).meanTokensPerRound);
    const ceiling = ceilingOf(state);
    const rows = tableOf("sizes", state, numRounds).rows.filter((row) => row.rounds > 0);
    const each = rows.map((row) => `${counted(row.tokens_in_round, "token")} in ${counted(row.rounds, "round")}`).join("; ");
    return {
      value: `mean ${mean}`, of: `${totals.committed} / ${counted(totals.rounds, "round")}`,
      summary: `${each}. The mean is ${mean} tokens for one target pass${ceiling === null ? "" : `, and ${ceiling} the most that is possible`}.`,
    };
  }

  return { PLOTS, sayingOf };
})();
