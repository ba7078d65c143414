// One tab stop for all chips of a text: arrows go from token to token, Home and End to the first and the last.
SpecViz.chipKeys = (() => {
  const STEPS = { ArrowLeft: (at) => at - 1, ArrowRight: (at) => at + 1, Home: () => 0, End: (at, count) => count - 1 };

  /** `lines`: see textLines; `fallback` takes the focus when its chip goes. */
  function listen(lines, fallback) {
    let current = null; // the chip that is the tab stop

    lines.node.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      const chip = event.target.closest(".sv-chip");
      if (!step || !chip || event.shiftKey || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      const next = step(lines.indexOf(chip), lines.count);
      if (next >= 0 && next < lines.count) focus(lines.chipAt(next));
    });
    lines.node.addEventListener("focusin", (event) => makeTabStop(event.target.closest(".sv-chip")));

    function focus(chip) {
      makeTabStop(chip);
      chip.focus();
    }

    function makeTabStop(chip) {
      if (chip === current) return;
      if (current) for (const name of ["tabindex", "role"]) current.removeAttribute(name);
      current = chip;
      if (!chip) return;
      chip.setAttribute("tabindex", "0");
      chip.setAttribute("role", "button");
    }

    /** Changes the chips: after it the newest is the tab stop, unless somebody is on another one that stays. */
    function around(change) {
      const hadFocus = lines.node.contains(document.activeElement);
      const result = change();
      if (!hadFocus) moveToNewest();
      else if (!lines.node.contains(document.activeElement)) {
        fallback.focus({ preventScroll: true });
        moveToNewest();
      }
      return result;
    }

    function moveToNewest() {
      makeTabStop(lines.count > 0 ? lines.chipAt(lines.count - 1) : null);
    }

    return { around };
  }

  return { listen };
})();
