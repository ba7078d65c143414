// How a round is acted out: its phases, cut into beats. A beat is the smallest change one can see.
//
// A moment of a run is a whole number: 0 is before the first round, then one for each beat of each
// round. What is on screen depends on that number alone, however one got there.
SpecViz.choreography = (() => {
  const { draftOf, countStatus, numRolledBack } = SpecViz.reducer;

  // Seconds at speed 1.
  const BEAT_SECONDS = { draft: 0.3, nothing: 0.3, verify: 0.8, judge: 0.32, rollback: 0.9, land: 0.55, join: 0.9 };

  /** The beats of one round event, in order: [{phase, kind}]. */
  function beatsOf(event) {
    const numDrafted = draftOf(event).length;
    const numJudged = countStatus(event, "accepted") + countStatus(event, "rejected");
    const beats = [];
    if (numDrafted === 0) beats.push({ phase: "draft", kind: "nothing" });
    for (let i = 0; i < numDrafted; i += 1) beats.push({ phase: "draft", kind: "draft" });
    beats.push({ phase: "verify", kind: "verify" });
    for (let i = 0; i < numJudged; i += 1) beats.push({ phase: "judge", kind: "judge" });
    if (numRolledBack(event) > 0) beats.push({ phase: "rollback", kind: "rollback" });
    if (event.extra) beats.push({ phase: "commit", kind: "land" });
    beats.push({ phase: "commit", kind: "join" });
    return beats;
  }

  /** What can be seen once beat `beat` of `beats` has happened. */
  function progressAt(beats, beat) {
    const done = beats.slice(0, beat + 1);
    const has = (kind) => done.some((b) => b.kind === kind);
    const count = (kind) => done.filter((b) => b.kind === kind).length;
    return {
      phase: beats[beat].phase,
      drafted: count("draft"),
      verified: has("verify"),
      judged: count("judge"),
      rolledBack: has("rollback"),
      landed: has("land"),
      joined: has("join"),
    };
  }

  /** What a round took on the clock of its run; null where a part was not measured. */
  function secondsOf({ seconds }) {
    const parts = seconds ? [seconds.draft, seconds.verify, seconds.other] : [];
    const sum = parts.reduce((total, part) => total + part, 0);
    return parts.length > 0 && parts.every((part) => typeof part === "number") && sum > 0 ? sum : null;
  }

  /** Maps moments to rounds and beats; grows with the run. */
  function createTimeline() {
    const beatsByRound = [];
    const starts = []; // starts[i]: the moment of the first beat of round i
    const recorded = []; // recorded[i]: seconds that round i really took, null where it is not known
    let last = 0; // the last moment

    function append(event) {
      const beats = beatsOf(event);
      starts.push(last + 1);
      beatsByRound.push(beats);
      recorded.push(secondsOf(event));
      last += beats.length;
    }

    function roundIndexAt(moment) {
      let low = 0;
      let high = starts.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (starts[middle] <= moment) low = middle;
        else high = middle - 1;
      }
      return low;
    }

    /** {roundIndex: -1} before the first round, else {roundIndex, beat, beats}. */
    function locate(moment) {
      if (moment <= 0 || starts.length === 0) return { roundIndex: -1, beat: -1, beats: [] };
      const roundIndex = roundIndexAt(Math.min(moment, last));
      return { roundIndex, beat: Math.min(moment, last) - starts[roundIndex], beats: beatsByRound[roundIndex] };
    }

    /** The moment at which a round is over; 0 for the one before the first. */
    function endOf(roundIndex) {
      const index = Math.min(roundIndex, starts.length - 1);
      return index < 0 ? 0 : starts[index] + beatsByRound[index].length - 1;
    }

    const startOf = (roundIndex) => starts[roundIndex];

    /** The end of the phase that follows `moment`. */
    function nextStep(moment) {
      if (moment >= last) return last;
      const { roundIndex, beat, beats } = locate(moment + 1);
      let end = beat;
      while (end + 1 < beats.length && beats[end + 1].phase === beats[beat].phase) end += 1;
      return starts[roundIndex] + end;
    }

    /** The end of the phase before the one that `moment` is in. */
    function previousStep(moment) {
      const { roundIndex, beat, beats } = locate(moment);
      if (roundIndex < 0) return 0;
      let first = beat;
      while (first > 0 && beats[first - 1].phase === beats[beat].phase) first -= 1;
      return starts[roundIndex] + first - 1;
    }

    /** How long the beat at `moment` stays, at speed 1. */
    function secondsAt(moment) {
      const { roundIndex, beat, beats } = locate(moment);
      return roundIndex < 0 ? BEAT_SECONDS.join : BEAT_SECONDS[beats[beat].kind];
    }

    const secondsOfRound = (roundIndex) =>
      beatsByRound[roundIndex].reduce((sum, beat) => sum + BEAT_SECONDS[beat.kind], 0);

    const recordedSecondsOf = (roundIndex) => recorded[roundIndex] ?? null;

    return {
      append, locate, endOf, startOf, nextStep, previousStep, secondsAt, secondsOfRound, recordedSecondsOf,
      get last() { return last; },
      get numRounds() { return starts.length; },
    };
  }

  return { beatsOf, progressAt, createTimeline, BEAT_SECONDS };
})();
