// The clock of the stage: which moment is shown, whether it runs, how fast. No DOM; time comes in
// through `advance(seconds)`.
//
// A live run is followed: the player keeps to its newest round and hurries where it must. Whoever
// pauses, steps or scrubs lets go of it; generation goes on, and `follow()` catches up.
SpecViz.player = (() => {
  const REAL_TIME = "real time"; // each round takes as long as it took when it was run
  const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8, REAL_TIME];
  const TOO_QUICK_TO_ACT = 0.35; // seconds between rounds, under which a round is shown finished at once

  function createPlayer(timeline) {
    let moment = 0;
    let shownFor = 0; // seconds that this moment has been shown
    let isPlaying = false;
    let isFollowing = false;
    let isLive = false;
    let speed = 1;
    let roundInterval = null; // seconds between the rounds of a live run, smoothed

    const isAtEnd = () => moment >= timeline.last;
    const roundIndex = () => timeline.locate(moment).roundIndex;
    const isMidRound = () => moment !== timeline.endOf(roundIndex());
    const isTooQuickToAct = () => roundInterval !== null && roundInterval < TOO_QUICK_TO_ACT;

    function goTo(newMoment) {
      moment = Math.max(0, Math.min(newMoment, timeline.last));
      shownFor = 0;
    }

    function pauseAt(newMoment) {
      isPlaying = false;
      isFollowing = false;
      goTo(newMoment);
    }

    function follow() {
      isFollowing = true;
      isPlaying = true;
      goTo(timeline.last);
    }

    /** Time scale of the round in hand: a followed round must be over when the next one comes. */
    function pace() {
      if (!isFollowing || roundInterval === null || roundIndex() < 0) return speed === REAL_TIME ? realPace() : speed;
      return Math.max(1, timeline.secondsOfRound(roundIndex()) / roundInterval);
    }

    /** Acted seconds for each second of the recorded clock, in the round in hand. */
    function realPace() {
      const index = Math.max(0, roundIndex());
      const recorded = timeline.recordedSecondsOf(index);
      return recorded === null ? 1 : timeline.secondsOfRound(index) / recorded;
    }

    /** Lets `seconds` pass; says whether the picture changed. */
    function advance(seconds) {
      if (!isPlaying) return false;
      const before = moment;
      shownFor += seconds * pace();
      while (!isAtEnd() && shownFor >= timeline.secondsAt(moment)) {
        shownFor -= timeline.secondsAt(moment);
        moment += 1;
      }
      if (isAtEnd()) {
        shownFor = 0;
        if (!isLive) isPlaying = false;
      }
      return moment !== before;
    }

    /**
     * New rounds of a live run are on the timeline.
     * @param numRounds: how many
     * @param sinceLast: seconds since rounds came last
     * @param numDraftsShown: how many drafts of the newest one were shown already
     */
    function roundsArrived(numRounds, sinceLast, numDraftsShown = 0) {
      const interval = sinceLast / Math.max(1, numRounds);
      roundInterval = roundInterval === null ? interval : 0.7 * roundInterval + 0.3 * interval;
      if (!isFollowing) return;
      if (isTooQuickToAct()) goTo(timeline.last);
      else goTo(timeline.startOf(timeline.numRounds - 1) + Math.max(0, numDraftsShown - 1));
    }

    return {
      advance,
      roundsArrived,
      follow,
      play() {
        if (isLive && isAtEnd()) isFollowing = true;
        else if (isAtEnd()) goTo(0);
        isPlaying = true;
      },
      pause: () => pauseAt(moment),
      reset: () => pauseAt(0),
      stepForward: () => pauseAt(timeline.nextStep(moment)),
      stepBack: () => pauseAt(timeline.previousStep(moment)),
      roundForward: () => pauseAt(timeline.endOf(isMidRound() ? roundIndex() : roundIndex() + 1)),
      roundBack: () => pauseAt(timeline.endOf(roundIndex() - 1)),
      scrubToRound: (number) => pauseAt(timeline.endOf(number - 1)),
      goToEnd: () => (isLive ? follow() : pauseAt(timeline.last)),
      startLive() {
        isLive = true;
        roundInterval = null;
        follow();
      },
      endLive() {
        if (isFollowing) pauseAt(timeline.last);
        isLive = false;
      },
      setSpeed(value) {
        speed = value;
      },
      get moment() { return moment; },
      get isPlaying() { return isPlaying; },
      get isFollowing() { return isFollowing; },
      get isLive() { return isLive; },
      get isAtEnd() { return isAtEnd(); },
      get isTooQuickToAct() { return isTooQuickToAct(); },
      get speed() { return speed; },
    };
  }

  return { createPlayer, SPEEDS, REAL_TIME };
})();
