// The words and glyphs of the stage: one entry for each status, origin and phase.
SpecViz.vocabulary = (() => {
  // What became of a drafted token. `rejected` is the first failure; at most one a round.
  const STATUSES = {
    accepted: { glyph: "✓", word: "accepted", means: "the target agrees: it stays" },
    rejected: { glyph: "✗", word: "rejected", means: "the first one the target does not agree with" },
    discarded: { glyph: "–", word: "discarded", means: "drafted after the rejection: never judged" },
    cut: { glyph: "✂", word: "cut", means: "drafted after the point where the text ended: never judged" },
  };

  // Where a token of the text came from.
  const ORIGINS = {
    prompt: { glyph: "", word: "prompt", means: "given, not generated" },
    accepted: { glyph: "✓", word: "accepted draft", means: "guessed by the drafter, confirmed by the target" },
    correction: { glyph: "✎", word: "correction", means: "the target's own token, in place of a rejected one" },
    bonus: { glyph: "★", word: "bonus", means: "the target's own token after a fully accepted draft" },
    plain: { glyph: "•", word: "plain", means: "the target's own token; nothing was drafted" },
    unknown: { glyph: "?", word: "unknown", means: "the trace does not say" },
  };

  const PHASES = {
    draft: { word: "Draft", means: "the drafter guesses the next tokens" },
    verify: { word: "Verify", means: "the target reads all guesses in one pass" },
    judge: { word: "Judge", means: "guess by guess: does the target agree?" },
    rollback: { word: "Roll back", means: "what was not confirmed leaves the caches" },
    commit: { word: "Commit", means: "the kept tokens join the text" },
  };

  const DRAFTERS = {
    draft_model: "draft model",
    prompt_lookup: "prompt lookup",
    early_exit: "early exit",
    draft_head: "draft head",
    none: "no drafter",
  };

  const DRAFT_STOPS = {
    confidence: "the drafter was not sure enough to go on",
    eos: "the drafter proposed the end",
    context: "the drafter's context is full",
    budget: "no more tokens were asked for",
    no_match: "the drafter found nothing to propose",
  };

  const REASONS = {
    eos: "the model ended its text",
    stop: "a stop string ended the text",
    length: "all the tokens asked for",
    context: "the target's context is full",
    cancelled: "stopped by you",
    deadline: "the time was up",
  };

  return { STATUSES, ORIGINS, PHASES, DRAFTERS, DRAFT_STOPS, REASONS };
})();
