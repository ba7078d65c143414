// The words and glyphs of the stage: one entry for each status, origin and phase.
SpecViz.vocabulary = (() => {
  // What became of a drafted token. `rejected` is the first failure; at most one a round.
  const STATUSES = {
    accepted: { glyph: "✓", word: "accepted" },
    rejected: { glyph: "✗", word: "rejected" },
    discarded: { glyph: "–", word: "discarded" },
    cut: { glyph: "✂", word: "cut" },
  };

  // Where a token of the text came from.
  const ORIGINS = {
    prompt: { glyph: "", word: "prompt" },
    accepted: { glyph: "✓", word: "accepted draft" },
    correction: { glyph: "✎", word: "correction" },
    bonus: { glyph: "★", word: "bonus" },
    plain: { glyph: "•", word: "plain" },
    unknown: { glyph: "?", word: "unknown" },
  };

  const PHASES = {
    draft: { word: "Draft", means: "the drafter guesses the next tokens" },
    verify: { word: "Verify", means: "the target reads all guesses in one pass" },
    judge: { word: "Judge", means: "guess by guess, the target agrees or not" },
    rollback: { word: "Roll back", means: "what was not confirmed leaves the caches" },
    commit: { word: "Commit", means: "the kept tokens join the text" },
  };

  // Where nothing was drafted.
  const EMPTY_PHASES = {
    draft: "nothing is drafted in this round",
    verify: "the target reads the newest token in one pass",
  };

  const DRAFTERS = {
    draft_model: "draft model",
    prompt_lookup: "prompt lookup",
    early_exit: "early exit",
    draft_head: "draft head",
    none: "no drafter",
  };

  const WHY_NOTHING_WAS_DRAFTED = {
    confidence: "the drafter was not sure enough",
    eos: "the drafter saw the end",
    context: "the context had no room for a draft",
    budget: "only one token was left to write",
    no_match: "the text held no earlier match",
  };

  const WHY_THE_DRAFT_ENDED_EARLY = {
    confidence: "the drafter was no longer sure enough",
    eos: "the drafter drafted the end token",
    context: "the context had no more room",
    budget: "no more tokens were allowed",
    no_match: "the earlier match had no more to offer",
  };

  // What was asked for and is not shown; the run that was there before stays.
  const REFUSALS = {
    run: { word: "Not run", isPaused: true },
    file: { word: "Not opened", isPaused: true },
    link: { word: "Not as linked", isPaused: false },
  };
  const PAUSED = { live: "Below, paused: the run from before.", recording: "Below, paused: the recording from before." };

  // What a figure was measured in.
  const RUNS = { live: "this run", recording: "the recorded run" };

  const WHY_IT_ENDED = {
    eos: "the target said its end token",
    stop: "a stop string was written",
    length: "the allowed number of new tokens was reached",
    context: "the target's context is full",
    cancelled: "the run was stopped",
    deadline: "the deadline had passed",
  };

  return { STATUSES, ORIGINS, PHASES, EMPTY_PHASES, DRAFTERS, REFUSALS, PAUSED, RUNS, WHY_NOTHING_WAS_DRAFTED, WHY_THE_DRAFT_ENDED_EARLY, WHY_IT_ENDED };
})();
