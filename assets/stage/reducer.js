// Events in, state out: the one place that knows the trace format. No DOM, no clock.
//
// The state is append-only: `rounds[i].totals` holds the counts up to and including that round, and
// `rounds[i].textEnd` how many tokens the text has after it, so any moment can be drawn at once.
SpecViz.reducer = (() => {
  const NO_TOTALS = Object.freeze({
    rounds: 0, drafted: 0, accepted: 0, rejected: 0, discarded: 0, cut: 0, committed: 0,
    corrections: 0, bonuses: 0, plains: 0, draftSeconds: 0, verifySeconds: 0, otherSeconds: 0, rolledBack: 0,
    isTimed: true, layersRun: 0, leftEarly: 0,
  });

  function emptyState() {
    return {
      run: null, prompt: [], prefill: null, rounds: [], tokens: [], startTokens: 0, pending: null,
      finished: null, failed: null, identity: null, mostDrafted: 0, isWhole: false,
    };
  }

  /** Adds one event to the state and returns it; unknown event types change nothing. */
  function reduce(state, event) {
    const handler = HANDLERS[event.type];
    if (handler) handler(state, event);
    return state;
  }

  /** The state after all of `events`. */
  function fold(events) {
    return events.reduce(reduce, emptyState());
  }

  const HANDLERS = {
    run_started(state, event) {
      state.run = event;
      state.prompt = promptTokens(event.prompt);
    },
    prefill(state, event) {
      state.prefill = event;
      for (const id of event.committed || []) state.tokens.push({ id, text: null, origin: "unknown", round: 0 });
      state.startTokens = state.tokens.length;
    },
    draft_token(state, event) {
      if (!state.pending || state.pending.round !== event.round) {
        state.pending = { round: event.round, tokens: [] };
      }
      state.pending.tokens[event.index] = event.token;
    },
    round(state, event) {
      const kept = committedTokens(event);
      if (hasLeftEarly(state, event)) for (const token of kept) token.exitLayer = event.exit.layer;
      const textStart = state.tokens.length;
      state.tokens.push(...kept);
      state.rounds.push({
        number: event.round,
        event,
        textStart,
        textEnd: state.tokens.length,
        totals: addRound(lastTotals(state), event, hasLeftEarly(state, event)),
      });
      state.mostDrafted = Math.max(state.mostDrafted, draftOf(event).length);
      state.pending = null;
    },
    run_finished(state, event) {
      state.finished = event;
      state.pending = null;
    },
    run_failed(state, event) {
      state.failed = event;
      state.pending = null;
    },
    identity(state, event) {
      state.identity = event;
    },
  };

  function promptTokens(prompt) {
    const special = new Set(prompt.special || []);
    const bytes = prompt.bytes || {};
    return (prompt.token_ids || []).map((id, index) => ({
      id,
      text: (prompt.pieces || [])[index] ?? null,
      bytes: bytes[String(index)],
      special: special.has(index),
      origin: "prompt",
      round: 0,
    }));
  }

  /** The tokens a round adds to the text, in order: the accepted drafts, then the extra. */
  function committedTokens(event) {
    const kept = draftOf(event)
      .filter((token) => token.status === "accepted")
      .map((token, place) => ({ ...token, origin: "accepted", round: event.round, place }));
    if (event.extra) kept.push({ ...event.extra, origin: event.extra.kind || "unknown", round: event.round, place: "extra" });
    return kept;
  }

  function draftOf(event) {
    return event.draft || [];
  }

  function countStatus(event, status) {
    return draftOf(event).filter((token) => token.status === status).length;
  }

  /** How many drafted tokens a round takes back: everything that was drafted and not accepted. */
  function numRolledBack(event) {
    return draftOf(event).length - countStatus(event, "accepted");
  }

  /** Its events are all there, and they end before the run did. */
  function isCutOff(state) {
    return state.isWhole && !state.finished && !state.failed;
  }

  function lastTotals(state) {
    const last = state.rounds[state.rounds.length - 1];
    return last ? last.totals : NO_TOTALS;
  }

  /** In an early-exit run: whether the round's token was said before the last layer. */
  function hasLeftEarly(state, event) {
    return Boolean(event.exit && state.run && event.exit.layer < state.run.target.num_layers);
  }

  /** `isTimed` ends with the first round that comes without times (a served run). */
  function addRound(before, event, isEarly) {
    const kind = event.extra ? event.extra.kind : null;
    const seconds = event.seconds || {};
    const isTimed = ["draft", "verify", "other"].every((part) => typeof seconds[part] === "number");
    return {
      rounds: before.rounds + 1,
      drafted: before.drafted + draftOf(event).length,
      accepted: before.accepted + countStatus(event, "accepted"),
      rejected: before.rejected + countStatus(event, "rejected"),
      discarded: before.discarded + countStatus(event, "discarded"),
      cut: before.cut + countStatus(event, "cut"),
      committed: before.committed + (event.committed || []).length,
      corrections: before.corrections + (kind === "correction" ? 1 : 0),
      bonuses: before.bonuses + (kind === "bonus" ? 1 : 0),
      plains: before.plains + (kind === "plain" ? 1 : 0),
      draftSeconds: before.draftSeconds + (seconds.draft || 0),
      verifySeconds: before.verifySeconds + (seconds.verify || 0),
      otherSeconds: before.otherSeconds + (seconds.other || 0),
      rolledBack: before.rolledBack + numRolledBack(event),
      isTimed: before.isTimed && isTimed,
      layersRun: before.layersRun + (event.exit ? event.exit.layer : 0),
      leftEarly: before.leftEarly + (isEarly ? 1 : 0),
    };
  }

  return { NO_TOTALS, emptyState, reduce, fold, draftOf, countStatus, numRolledBack, isCutOff };
})();
