// The transport: reset, step back, play or pause, step forward, the scrubber, the speed, and the doors.
SpecViz.transportView = (() => {
  const { el, setData, setText, icon } = SpecViz.dom;
  const { SPEEDS, REAL_TIME } = SpecViz.player;

  /** `commands`: {reset, stepBack, toggle, stepForward, scrub(round), speed(value), follow, save, fullScreen} */
  function createView(commands) {
    const playIcon = icon("play");
    const pauseIcon = icon("pause");
    const toggle = button("sv-toggle", "Play", [playIcon, pauseIcon], commands.toggle);
    const follow = el("button", { class: "sv-button sv-follow", type: "button", onClick: commands.follow }, "Catch up");
    const scrub = el("input", {
      class: "sv-scrub", type: "range", min: "0", max: "0", value: "0", step: "1", "aria-label": "Round",
      onInput: (event) => commands.scrub(Number(event.target.value)),
    });
    const where = el("span", { class: "sv-where" });
    const speedText = el("span", { class: "sv-speed-text" });
    const speed = el("input", {
      class: "sv-speed", type: "range", min: "0", max: String(SPEEDS.length - 1), step: "1",
      value: String(SPEEDS.indexOf(1)), "aria-label": "Speed",
      onInput: (event) => commands.speed(SPEEDS[Number(event.target.value)]),
    });
    const node = el(
      "div",
      { class: "sv-transport", role: "group", "aria-label": "Player" },
      el(
        "div",
        { class: "sv-buttons" },
        button("", "Reset to the start", [icon("reset")], commands.reset),
        button("", "Step back", [icon("back")], commands.stepBack),
        toggle,
        button("", "Step forward", [icon("forward")], commands.stepForward),
        follow,
      ),
      el("div", { class: "sv-position" }, scrub, where),
      el("label", { class: "sv-speed-label" }, el("span", {}, "speed "), speedText, speed),
      el(
        "div",
        { class: "sv-doors" },
        button("", "Save this run as a trace (JSONL)", [icon("save")], commands.save),
        button("", "Full screen", [icon("full")], commands.fullScreen),
      ),
    );

    function draw(state, frame, player) {
      const numRounds = state.rounds.length;
      const round = frame.roundIndex + 1;
      scrub.max = String(numRounds);
      scrub.value = String(round);
      const words = round === 0 ? `start, ${numRounds} round${numRounds === 1 ? "" : "s"}` : `round ${round} of ${numRounds}`;
      setText(where, words);
      scrub.setAttribute("aria-valuetext", round === 0 ? words : `${words}: ${frame.spoken}`);
      const isReal = player.speed === REAL_TIME;
      setText(speedText, isReal ? REAL_TIME : `${player.speed}×`);
      speed.setAttribute("aria-valuetext", isReal ? "real time, the recorded clock" : `${player.speed} times`);
      setData(toggle, "playing", player.isPlaying ? "1" : null);
      toggle.setAttribute("aria-label", player.isPlaying ? "Pause" : "Play");
      toggle.title = player.isPlaying ? "Pause (Space)" : "Play (Space)";
      follow.hidden = !player.isLive || player.isFollowing;
    }

    return { node, draw };
  }

  function button(className, label, children, onClick) {
    return el("button", { class: `sv-button ${className}`.trim(), type: "button", "aria-label": label, title: label, onClick }, children);
  }

  return { createView };
})();
