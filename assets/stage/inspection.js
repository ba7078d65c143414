// What there is to know about one token of a run: the events of its round, arranged around it. No DOM.
//
// A token's address is {round, place}: the round's number, and its place in the draft or "extra". As a key
// it is "12.3" or "12.extra"; a token of the prompt has "prompt.5".
SpecViz.inspection = (() => {
  const { draftOf, countStatus } = SpecViz.reducer;
  const GREEDY_BELOW = 1e-5; // a lower temperature is greedy

  const isNumber = (value) => typeof value === "number";
  const isJudged = (token) => token.status === "accepted" || token.status === "rejected";

  // ---- addresses ----

  const keyOf = ({ round, place }) => `${round}.${place}`;

  function addressOf(key) {
    const [round, place] = String(key).split(".");
    if (round === "prompt") return { round, place: Number(place) };
    return { round: Number(round), place: place === "extra" ? place : Number(place) };
  }

  /** The index of a round by its number; -1 when it is not there. */
  function roundIndexOf(state, number) {
    const likely = number - 1;
    if (state.rounds[likely] && state.rounds[likely].number === number) return likely;
    return state.rounds.findIndex((round) => round.number === number);
  }

  /** The places of a round, in the order of its story: the draft, then the extra token. */
  function placesOf(event) {
    return [...draftOf(event).keys(), ...(event.extra ? ["extra"] : [])];
  }

  /** The address of the token before (-1) or after (1) in the story of the run; null at its ends. */
  function neighbourOf(state, { round, place }, direction) {
    let index = roundIndexOf(state, round);
    if (index < 0) return null;
    const places = placesOf(state.rounds[index].event);
    const next = places[places.indexOf(place) + direction];
    if (next !== undefined) return { round, place: next };
    for (index += direction; state.rounds[index]; index += direction) {
      const others = placesOf(state.rounds[index].event);
      if (others.length > 0) return { round: state.rounds[index].number, place: direction > 0 ? others[0] : others.at(-1) };
    }
    return null;
  }

  // ---- one token ----

  /** Everything about the token at `address`, or null when there is none. */
  function inspect(state, address) {
    const round = state.rounds[roundIndexOf(state, address.round)];
    if (!round) return null;
    const { event } = round;
    const isExtra = address.place === "extra";
    const token = isExtra ? event.extra : draftOf(event)[address.place];
    if (!token) return null;
    const pending = pendingPosition(state, round);
    return {
      key: keyOf(address),
      round: event.round,
      token,
      isExtra,
      origin: isExtra ? token.kind || "unknown" : token.status,
      place: isExtra ? null : address.place + 1,
      numDrafted: draftOf(event).length,
      position: pending === null ? null : pending + 1 + (isExtra ? countStatus(event, "accepted") : address.place),
      verdict: isExtra ? { kind: "own", origin: token.kind, u: token.u } : verdictOf(state, event, token),
      comparison: comparisonOf(state, event, token, isExtra),
      residual: residualOf(event, token, isExtra),
      pass: passOf(state, round, address),
      seconds: secondsOf(event),
      caches: event.cache || null,
      exit: exitOf(state, event),
    };
  }

  /** Of an early-exit run: how far the token went, and what was asked on the way; else null. */
  function exitOf(state, event) {
    if (!event.exit || !state.run) return null;
    const { layer, confidences, threshold } = event.exit;
    const { exit_layers: exitLayers = [], measure = "" } = state.run.early_exit || {};
    const looks = confidences.map((confidence, index) => ({ layer: exitLayers[index] ?? null, confidence }));
    return { layer, numLayers: state.run.target.num_layers, threshold: isNumber(threshold) ? threshold : null, measure, looks };
  }

  /** Where the pending token stands, counted from 0 at the prompt's first; null where nobody can know. */
  function pendingPosition(state, round) {
    const target = (round.event.cache || {}).target;
    if (target && isNumber(target.before)) return target.before;
    return state.prompt.length > 0 ? state.prompt.length + round.textStart - 1 : null;
  }

  function isGreedy(state) {
    const temperature = state.run && state.run.settings ? state.run.settings.temperature : undefined;
    return isNumber(temperature) && temperature < GREEDY_BELOW;
  }

  /** How a drafted token was judged: {kind: "void" | "sampled" | "greedy" | "unknown", ...} */
  function verdictOf(state, event, token) {
    if (token.status === "discarded" || token.status === "cut") return { kind: "void", why: token.status };
    if (isNumber(token.u) && isNumber(token.accept_prob)) return sampledVerdict(token);
    if (!isGreedy(state)) return { kind: "unknown" };
    const favourite = tokenOfEntry((token.target_top || [])[0]) || greedyChoice(event, token);
    return { kind: "greedy", favourite, isSame: token.status === "accepted" };
  }

  /** A drafter without a distribution counts as certain of its token. */
  function sampledVerdict(token) {
    const draftUsed = isNumber(token.draft_prob_used) ? token.draft_prob_used : 1;
    const targetUsed = isNumber(token.target_prob_used) ? token.target_prob_used : null;
    return {
      kind: "sampled",
      u: token.u,
      chance: token.accept_prob,
      passed: token.u < token.accept_prob,
      ratio: targetUsed !== null && draftUsed > 0 ? targetUsed / draftUsed : null,
      targetUsed,
      draftUsed,
      isCertain: !isNumber(token.draft_prob_used),
    };
  }

  /** What the target chose when greedy, where the top lists are missing. */
  function greedyChoice(event, token) {
    if (token.status === "accepted") return token;
    return event.extra && event.extra.kind === "correction" ? event.extra : null;
  }

  // ---- the two distributions ----

  /**
   * Both distributions at the token's position, token by token.
   * @returns {{rows: [{id, text, marks, isSubject, draft, target}], tail, missing}} `draft` and `target` are
   *   probabilities, or null where the token is not in that list; `missing` says why a whole side is not there
   */
  function comparisonOf(state, event, token, isExtra) {
    const drafted = isExtra ? draftedAt(event) : token;
    const isAnswered = isExtra ? token.kind === "correction" : token.status === "rejected";
    const correction = isAnswered ? event.extra : null;
    const draftOwn = [drafted, correction].map((one) => [one, one && one.draft_prob]);
    const sides = {
      draft: { top: drafted ? drafted.draft_top : null, tail: drafted ? drafted.draft_tail : null, own: draftOwn },
      target: { top: token.target_top, tail: token.target_tail, own: [[token, token.target_prob]] },
    };
    const rows = new Map();
    for (const side of ["draft", "target"]) addSide(rows, side, sides[side]);
    for (const row of rows.values()) mark(row, token, isExtra ? drafted : correction);
    return {
      rows: [...rows.values()].sort((a, b) => (b.target ?? -1) - (a.target ?? -1) || (b.draft ?? -1) - (a.draft ?? -1)),
      tail: { draft: tailOf(sides.draft), target: tailOf(sides.target) },
      missing: { draft: whyNoDraft(state, drafted), target: whyNoTarget(state, token) },
      correction: correction || null,
    };
  }

  /** The drafted token that stood where the extra one is now; null when there was none. */
  function draftedAt(event) {
    return draftOf(event).find((token) => token.status === "rejected") || null;
  }

  function addSide(rows, side, { top, own }) {
    for (const [id, text, prob] of top || []) rowFor(rows, id, text)[side] = prob;
    for (const [token, prob] of own) {
      if (!token || !isNumber(prob)) continue;
      const row = rowFor(rows, token.id, token.text);
      if (row[side] === null) row[side] = prob;
    }
  }

  function rowFor(rows, id, text) {
    if (!rows.has(id)) rows.set(id, { id, text, marks: [], isSubject: false, draft: null, target: null });
    return rows.get(id);
  }

  function mark(row, subject, other) {
    row.isSubject = row.id === subject.id;
    for (const token of [subject, other]) {
      if (token && token.id === row.id) row.marks.push(token.kind || token.status);
    }
  }

  /** The mass of all tokens that have no row; the subject may have one without being in the list. */
  function tailOf({ top, tail, own }) {
    if (!isNumber(tail)) return null;
    const beyondTheList = own.filter(([token, prob]) => token && isNumber(prob) && !(top || []).some(([id]) => id === token.id));
    return Math.max(0, beyondTheList.reduce((left, [, prob]) => left - prob, tail));
  }

  /** null | "no_draft" | "no_distribution" | "not_reported" | "not_recorded" */
  function whyNoDraft(state, drafted) {
    if (!drafted) return "no_draft";
    if (drafted.draft_top) return null;
    if (drafted.looked_up || (state.run && state.run.drafter.kind === "prompt_lookup")) return "no_distribution";
    return whyNotRecorded(state);
  }

  /** null | "discarded" | "cut" | "not_reported" | "not_recorded" */
  function whyNoTarget(state, token) {
    if (token.target_top) return null;
    return token.status && !isJudged(token) ? token.status : whyNotRecorded(state);
  }

  function whyNotRecorded(state) {
    return state.run && state.run.mode === "served" ? "not_reported" : "not_recorded";
  }

  /** What the correction was drawn from, where dice were thrown: {rows, tail} or null. */
  function residualOf(event, token, isExtra) {
    const isAboutIt = isExtra ? token.kind === "correction" : token.status === "rejected";
    const { residual_top: top, residual_tail: tail } = event.extra || {};
    if (!isAboutIt || !top) return null;
    return {
      rows: top.map(([id, text, prob]) => ({ id, text, prob, isDrawn: id === event.extra.id })),
      tail: isNumber(tail) ? tail : null,
      drawn: event.extra,
    };
  }

  const tokenOfEntry = (entry) => (entry ? { id: entry[0], text: entry[1], prob: entry[2] } : null);

  // ---- the round around it ----

  /**
   * The verification pass: which row was fed what, what it may see, and what came out of it.
   * Row i sees every cached position and the fed tokens up to itself.
   */
  function passOf(state, round, address) {
    const { event } = round;
    const first = pendingPosition(state, round);
    const subjectRow = address.place === "extra" ? countStatus(event, "accepted") : address.place;
    const fed = [pendingToken(state, round), ...draftOf(event)];
    return {
      numCached: first,
      rows: fed.map((token, index) => ({
        token,
        isPending: index === 0,
        position: first === null ? null : first + index,
        gives: outcomeOf(event, index),
        isSubject: index === subjectRow,
      })),
    };
  }

  function pendingToken(state, round) {
    return state.tokens[round.textStart - 1] || state.prompt.at(-1) || { id: null, text: null };
  }

  /** What the target's row `index` was used for: {token, status} for a verdict, {token, kind} for the extra, or {unused}. */
  function outcomeOf(event, index) {
    const judged = draftOf(event)[index];
    if (judged && isJudged(judged)) return { token: judged, status: judged.status };
    const hasRejected = countStatus(event, "rejected") > 0;
    if (!hasRejected && event.extra && index === countStatus(event, "accepted")) return { token: event.extra, kind: event.extra.kind };
    return { unused: hasRejected ? "discarded" : "cut" };
  }

  function secondsOf(event) {
    const { draft, verify, other } = event.seconds || {};
    if (![draft, verify, other].every(isNumber)) return null;
    const total = draft + verify + other;
    const parts = { draft, verify, other };
    const shares = Object.fromEntries(Object.entries(parts).map(([part, value]) => [part, SpecViz.figures.ratio(value, total)]));
    return { parts, shares, total };
  }

  return { inspect, neighbourOf, keyOf, addressOf, roundIndexOf, isNumber };
})();
