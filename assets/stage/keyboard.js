// Keys, heard only while the focus is inside the stage, and never in place of a control's own keys.
SpecViz.keyboard = (() => {
  const KEYS = {
    " ": "toggle",
    ArrowRight: "stepForward",
    ArrowLeft: "stepBack",
    "Shift+ArrowRight": "roundForward",
    "Shift+ArrowLeft": "roundBack",
    Home: "reset",
    End: "goToEnd",
  };

  function listen(node, commands) {
    node.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || usesKey(event.target, event.key)) return;
      const command = KEYS[(event.shiftKey ? "Shift+" : "") + event.key];
      if (!command) return;
      event.preventDefault();
      commands[command]();
    });
    node.addEventListener("pointerdown", (event) => {
      if (!event.target.closest("button, input, dialog, [tabindex]:not(.sv-stage)")) node.focus({ preventScroll: true });
    });
  }

  function usesKey(target, key) {
    if (target.closest("input, textarea, select, [contenteditable]")) return true;
    return key === " " && Boolean(target.closest("button, summary, a"));
  }

  return { listen };
})();
