// What just happened, in one plain sentence.
SpecViz.sentence = (() => {
  const { draftOf, countStatus } = SpecViz.reducer;
  const { spoken } = SpecViz.pieces;
  const { DRAFT_STOPS, REASONS } = SpecViz.vocabulary;

  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  /** The sentence of one round event. */
  function ofRound(event) {
    const drafted = draftOf(event).length;
    const kept = (event.committed || []).length;
    const outcome = drafted === 0 ? nothingDrafted(event) : verdictOf(event, drafted);
    return `${outcome}; ${count(kept, "token")} for one target pass.`;
  }

  function nothingDrafted(event) {
    const why = DRAFT_STOPS[event.draft_stop];
    const own = event.extra ? `the target added its own ${spoken(event.extra)}` : "the text ended here";
    return `Nothing was drafted${why ? ` (${why})` : ""}; ${own}`;
  }

  function verdictOf(event, drafted) {
    const accepted = countStatus(event, "accepted");
    const rejected = draftOf(event).find((token) => token.status === "rejected");
    if (rejected) return `${accepted} of ${drafted} accepted; ${refusal(rejected, event.extra)}`;
    if (accepted < drafted) return `${accepted} of ${drafted} accepted, and the text ended there`;
    const all = drafted === 1 ? "The draft was accepted" : `All ${drafted} accepted`;
    if (!event.extra) return `${all}, and the text ended there`;
    return `${all}; the target added ${spoken(event.extra)} as a bonus`;
  }

  function refusal(rejected, extra) {
    const refused = `the target would not say ${spoken(rejected)}`;
    return extra ? `${refused}, it said ${spoken(extra)}` : refused;
  }

  /** Before the first round. */
  function ofStart(state) {
    if (!state.run) return "Press Run to let two models work on your prompt.";
    const length = state.prompt.length;
    return `The prompt is ${count(length, "token")} long; the models have read all but the last one.`;
  }

  /** After the last round. */
  function ofEnd(finished) {
    return REASONS[finished.reason] || finished.reason;
  }

  return { ofRound, ofStart, ofEnd };
})();
