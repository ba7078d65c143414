// A small bubble beside what it is about, on top of everything and in nobody's way: under the pointer
// after a moment, on focus at once, gone with Escape.
SpecViz.floating = (() => {
  const { el } = SpecViz.dom;
  const SECONDS_TO_SHOW = 0.3;
  const SECONDS_TO_HIDE = 0.12; // long enough to reach the bubble with the pointer
  const GAP = 6; // pixels
  let numBubbles = 0;

  function createBubble(className, children, { isAbove = false } = {}) {
    const node = el("div", { class: `sv-bubble ${className}`, role: "tooltip", popover: "manual", id: `${className}-${(numBubbles += 1)}` }, children);
    let anchor = null;
    let timer = null;

    function show(next, fill) {
      cancel();
      if (!next.isConnected || !fill(next)) return;
      if (anchor !== next) letGo();
      anchor = next;
      anchor.setAttribute("aria-describedby", node.id);
      node.showPopover?.();
      place(node, anchor, isAbove);
    }

    function hide() {
      cancel();
      letGo();
      if (node.matches(":popover-open")) node.hidePopover();
    }

    function letGo() {
      if (anchor) anchor.removeAttribute("aria-describedby");
      anchor = null;
    }

    function cancel() {
      clearTimeout(timer);
      timer = null;
    }

    function later(seconds, act) {
      cancel();
      timer = setTimeout(act, seconds * 1000);
    }

    /** Shows the bubble for what matches `selector` inside `root`; `fill(anchor)` says whether there is anything to say. */
    function follow(root, selector, fill) {
      const found = (event) => (event.target.closest ? event.target.closest(selector) : null);
      root.addEventListener("pointerover", (event) => {
        const next = found(event);
        if (event.pointerType === "touch" || (next && next === anchor)) return next && cancel();
        if (next) return later(anchor ? 0 : SECONDS_TO_SHOW, () => show(next, fill));
        return node.contains(event.target) ? cancel() : later(SECONDS_TO_HIDE, hide);
      });
      root.addEventListener("pointerleave", () => later(SECONDS_TO_HIDE, hide));
      root.addEventListener("focusin", (event) => {
        const next = found(event);
        if (next && event.target === next && next.matches(":focus-visible, dfn")) show(next, fill);
        else hide();
      });
      root.addEventListener("focusout", hide);
      document.addEventListener("scroll", onScroll, { capture: true, passive: true });
      root.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || anchor === null) return;
        event.stopPropagation();
        event.preventDefault();
        hide();
      }, { capture: true });
    }

    /** Focus scrolls its element into view, and the bubble goes along; under the pointer it would lose its place. */
    function onScroll() {
      if (anchor !== null && anchor === document.activeElement) place(node, anchor, isAbove);
      else hide();
    }

    return { node, follow, hide };
  }

  /** Under its anchor or above it, on the other side where there is no room; always inside the window. */
  function place(node, anchor, isAbove) {
    const at = anchor.getBoundingClientRect();
    const { width, height } = node.getBoundingClientRect();
    const left = Math.min(at.left, innerWidth - width - GAP);
    const above = at.top - GAP - height;
    const below = at.bottom + GAP;
    const fits = isAbove ? above >= GAP : below + height <= innerHeight;
    node.style.setProperty("left", `${Math.max(GAP, left)}px`);
    node.style.setProperty("top", `${Math.max(GAP, fits === isAbove ? above : below)}px`);
  }

  return { createBubble };
})();
