// The inspector: one token, looked into. It stands beside the stage where there is room, and over it where
// there is not. Arrows go to the neighbours, Escape closes, and the focus returns to where it came from.
SpecViz.inspectorView = (() => {
  const { el, setData, setText, tokenText, icon } = SpecViz.dom;
  const { STATUSES, ORIGINS } = SpecViz.vocabulary;
  const { inspect, neighbourOf, addressOf, keyOf, roundIndexOf } = SpecViz.inspection;
  const { placeOf, verdictSentence } = SpecViz.inspectionWords;
  const { capitalized } = SpecViz.sentence;
  const parts = SpecViz.inspectorParts;
  let numInspectors = 0;
  const ROOM_BESIDE = 880; // pixels of stage; the style sheet says the same

  /**
   * @param body: the element in which tokens are chosen, and which makes room
   * @param look(): the {state} of the run
   * @param onShowRound(number): show this round on the stage
   * @param onEmptyHanded(): takes the focus where the token it came from is gone
   */
  function createView({ body, look, onShowRound, onEmptyHanded }) {
    const token = el("span", { class: "sv-inspected" });
    const pill = el("span", { class: "sv-pill" });
    const id = `sv-inspector-${(numInspectors += 1)}`;
    const title = el("h2", { class: "sv-inspector-title", tabindex: "-1", autofocus: true, id }, token, pill);
    const place = el("p", { class: "sv-muted" });
    const verdict = el("p", { class: "sv-inspector-verdict", "aria-live": "polite" });
    const content = el("div", { class: "sv-parts" });
    const previous = button("Previous token (left arrow)", "back", () => go(-1));
    const next = button("Next token (right arrow)", "forward", () => go(1));
    const showRound = el("button", { class: "sv-fold sv-show-round", type: "button", onClick: goToRound }, "show on the stage");
    const close = el("button", { class: "sv-button sv-close", type: "button", "aria-label": "Close the inspector (Escape)", onClick: leave }, "✕");
    const node = el(
      "dialog",
      { class: "sv-inspector", "aria-labelledby": id },
      el(
        "div",
        { class: "sv-inspector-sheet" },
        el("header", { class: "sv-inspector-head" }, el("div", { class: "sv-inspector-bar" }, previous, next, showRound, close), title, place, verdict),
        content,
      ),
    );

    let address = null;
    let cameFrom = null;

    listen();

    function listen() {
      body.addEventListener("click", (event) => openAt(tokenUnder(event)));
      body.addEventListener("keydown", (event) => {
        if (event.key === "Escape" && node.open) leave();
        const chosen = event.key === "Enter" || event.key === " " ? tokenUnder(event) : null;
        if (!chosen || chosen !== event.target) return;
        event.preventDefault();
        event.stopPropagation();
        openAt(chosen);
      });
      node.addEventListener("keydown", onKey);
      node.addEventListener("cancel", (event) => { event.preventDefault(); leave(); });
      node.addEventListener("click", (event) => { if (event.target === node) leave(); }); // beside the sheet
      new ResizeObserver(() => node.open && node.dataset.beside !== besideNow() && stand()).observe(body);
    }

    function tokenUnder(event) {
      if (node.contains(event.target)) return null;
      return event.target.closest("[data-token]");
    }

    function onKey(event) {
      event.stopPropagation(); // the stage's own keys are not for here
      if (event.key === "Escape") {
        event.preventDefault();
        leave();
      } else if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && !event.target.closest(".sv-mask-scroll")) {
        event.preventDefault();
        go(event.key === "ArrowLeft" ? -1 : 1);
      }
    }

    // ---- open, follow, close ----

    function openAt(element) {
      if (!element) return;
      const chosen = addressOf(element.dataset.token);
      if (!inspect(look().state, chosen)) return;
      address = chosen;
      cameFrom = element;
      fill();
      if (!node.open) stand();
      title.focus({ preventScroll: true });
      node.firstChild.scrollTop = 0;
    }

    const besideNow = () => (body.clientWidth >= ROOM_BESIDE ? "1" : "0");

    /** Beside the stage the rest stays in reach; over it nothing else can be. */
    function stand() {
      if (node.open) node.close();
      node.dataset.beside = besideNow();
      setData(body, "inspecting", node.dataset.beside === "1" ? "1" : null);
      if (node.dataset.beside === "1") node.show();
      else node.showModal();
    }

    function go(direction) {
      const neighbour = neighbourOf(look().state, address, direction);
      if (!neighbour) return;
      address = neighbour;
      fill();
      node.firstChild.scrollTop = 0;
    }

    function goToRound() {
      onShowRound(roundIndexOf(look().state, address.round) + 1);
      if (node.dataset.beside !== "1") leave();
      else mark();
    }

    function leave() {
      if (!node.open) return;
      const returnTo = placeToReturn();
      shut();
      if (returnTo) returnTo.focus();
      else onEmptyHanded();
    }

    function shut() {
      if (node.open) node.close();
      address = null;
      setData(body, "inspecting", null);
      delete node.dataset.beside;
      content.replaceChildren();
      for (const each of [token, pill, place, verdict]) each.textContent = "";
      setData(pill, "origin", null);
      for (const each of [previous, next]) setEnabled(each, true);
      mark();
    }

    /** The token that is looked into now, where it can be focused; else where the inspector was opened from. */
    function placeToReturn() {
      const focusable = marked().find((element) => element.hasAttribute("tabindex"));
      if (focusable) return focusable;
      if (!cameFrom || !cameFrom.isConnected) return null;
      if (!cameFrom.hasAttribute("tabindex")) cameFrom.setAttribute("tabindex", "-1");
      return cameFrom;
    }

    // ---- what it shows ----

    function fill() {
      const { state } = look();
      const inspection = inspect(state, address);
      const known = STATUSES[inspection.origin] || ORIGINS[inspection.origin] || ORIGINS.unknown;
      token.replaceChildren(tokenText(inspection.token));
      setText(pill, `${known.glyph} ${known.word}`);
      setData(pill, "origin", inspection.origin);
      setText(place, withId(capitalized(placeOf(inspection)), inspection.token));
      setText(verdict, verdictSentence(inspection));
      const settings = state.run ? state.run.settings || {} : {};
      const whyNoDraftCache = SpecViz.cachesView.noCacheWhy(state, inspection.caches);
      content.replaceChildren(
        ...[
          parts.diePart(inspection),
          SpecViz.exitPart.exitPart(inspection),
          parts.comparisonPart(inspection, settings, state.run ? state.run.drafter : {}),
          parts.residualPart(inspection),
          parts.passPart(inspection),
          parts.timePart(inspection),
          parts.cachesPart(inspection, whyNoDraftCache),
        ].filter(Boolean),
      );
      draw();
    }

    /** After the stage has changed: what is looked into stays, its marks and neighbours may not. */
    function draw() {
      if (!address) return;
      const { state } = look();
      setEnabled(previous, neighbourOf(state, address, -1) !== null);
      setEnabled(next, neighbourOf(state, address, 1) !== null);
      mark();
    }

    const marked = () => (address ? [...body.querySelectorAll(`[data-token="${keyOf(address)}"]`)] : []);

    function mark() {
      const now = new Set(marked());
      for (const old of body.querySelectorAll("[data-inspected]")) if (!now.has(old)) delete old.dataset.inspected;
      for (const element of now) element.dataset.inspected = "1";
    }

    return { node, draw, shut };
  }

  /** Not `disabled`, which would drop the focus. */
  function setEnabled(button, isEnabled) {
    if (isEnabled) button.removeAttribute("aria-disabled");
    else button.setAttribute("aria-disabled", "true");
  }

  function withId(words, { id }) {
    return id === null || id === undefined ? words : `${words}, id ${id}`;
  }

  function button(label, iconName, onClick) {
    return el("button", { class: "sv-button", type: "button", "aria-label": label, onClick }, icon(iconName));
  }

  return { createView };
})();
