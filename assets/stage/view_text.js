// The text so far: one chip a token, its origin by colour and mark; more about it in the card and the inspector.
SpecViz.textView = (() => {
  const { el, setData, setText, tokenText } = SpecViz.dom;
  const { ORIGINS } = SpecViz.vocabulary;
  const { term } = SpecViz.glossaryTips;
  const { createLines } = SpecViz.textLines;
  const { keyOf } = SpecViz.inspection;
  const SHORT_PROMPT = 16; // tokens; a longer one starts folded
  const NEAR_THE_END = 60; // pixels; a reader who scrolled further up is left there

  function createView() {
    const promptButton = el("button", { class: "sv-fold", type: "button", "aria-expanded": "false" });
    const promptText = el("span", { class: "sv-prompt-text" });
    const promptChips = el("span", { class: "sv-prompt-chips" });
    const prompt = el("p", { class: "sv-prompt" }, promptButton, promptText, promptChips);
    const chips = el("p", { class: "sv-chips" });
    const scroll = el("div", { class: "sv-text-scroll", tabindex: "0", role: "region", "aria-label": "Text so far" }, prompt, chips);
    const promptLines = createLines(promptChips, scroll, (token, index) => chip(token, `prompt.${index}`));
    const lines = createLines(chips, scroll, (token) => chip(token, token.round ? keyOf(token) : null));
    const promptKeys = SpecViz.chipKeys.listen(promptLines, scroll);
    const keys = SpecViz.chipKeys.listen(lines, scroll);
    const numTokens = el("span", { class: "sv-muted" });
    const heading = el("div", { class: "sv-zone-head" }, el("h2", {}, "Text so far"), numTokens, legend());
    const node = el("section", { class: "sv-text" }, heading, scroll);

    let shownRun = null;
    let promptTokens = [];
    let isUnfolded = false;
    let isAtEnd = true; // where the reader has left the text
    let held = null; // {chip, top, width}: the token that was used last, and where it stood; it stays there

    promptButton.addEventListener("click", () => unfold(!isUnfolded));
    scroll.addEventListener("scroll", () => {
      isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR_THE_END;
      if (held && held.width === scroll.clientWidth) hold(held.chip);
    });
    for (const used of ["click", "keydown"]) scroll.addEventListener(used, ({ target }) => hold(target.closest(".sv-chip")));
    new ResizeObserver(settle).observe(scroll);

    const topOf = (chip) => chip.getBoundingClientRect().top - scroll.getBoundingClientRect().top;

    function hold(chip) {
      held = chip && chip.isConnected ? { chip, top: topOf(chip), width: scroll.clientWidth } : null;
    }

    /** The panel has another width, and its lines break elsewhere. */
    function settle() {
      if (held && held.chip.isConnected) {
        scroll.scrollTop += topOf(held.chip) - held.top;
        hold(held.chip);
      } else if (isAtEnd) toTheEnd();
    }

    function toTheEnd() {
      scroll.scrollTop = scroll.scrollHeight;
    }

    function unfold(value) {
      isUnfolded = value;
      promptButton.setAttribute("aria-expanded", String(value));
      setData(prompt, "unfolded", value ? "1" : null);
      drawPromptChips();
    }

    function drawPromptChips() {
      promptKeys.around(() => promptLines.show(promptTokens, isUnfolded ? promptTokens.length : 0));
    }

    function drawPrompt(state) {
      if (state.run === shownRun) return;
      shownRun = state.run;
      promptTokens = state.prompt;
      isAtEnd = true;
      setText(promptText, state.run ? state.run.prompt.text : "");
      setText(promptButton, `Prompt, ${state.prompt.length} tokens`);
      promptButton.hidden = !state.run;
      unfold(state.prompt.length > 0 && state.prompt.length <= SHORT_PROMPT);
    }

    function markNewest(from) {
      for (const old of chips.querySelectorAll("[data-new]")) delete old.dataset.new;
      for (let i = from; i < lines.count; i += 1) lines.chipAt(i).dataset.new = "1";
    }

    function draw(state, frame) {
      drawPrompt(state);
      const hasChanged = keys.around(() => lines.show(state.tokens, frame.numTokens));
      markNewest(frame.newFrom);
      setText(numTokens, `${frame.numTokens} new token${frame.numTokens === 1 ? "" : "s"}`);
      if (hasChanged) held = null;
      if (hasChanged && isAtEnd) toTheEnd();
    }

    return { node, draw };
  }

  function chip(token, key) {
    const origin = ORIGINS[token.origin] || ORIGINS.unknown;
    const node = el(
      "span",
      { class: "sv-chip", dataset: { origin: token.origin, token: key } },
      origin.glyph ? el("i", { class: "sv-mark", "aria-hidden": "true" }, origin.glyph) : null,
      tokenText(token),
      token.exitLayer ? el("sub", { class: "sv-exit-layer", title: `left after layer ${token.exitLayer}` }, token.exitLayer) : null,
    );
    return (token.text || "").includes("\n") ? el("span", { class: "sv-line-end" }, node, el("br")) : node;
  }

  function legend() {
    const entries = ["accepted", "correction", "bonus", "plain"].map((name) =>
      el(
        "li",
        {},
        el("span", { class: "sv-chip", dataset: { origin: name } }, el("i", { class: "sv-mark", "aria-hidden": "true" }, ORIGINS[name].glyph), term(name, ORIGINS[name].word)),
      ),
    );
    return el("ul", { class: "sv-legend", "aria-label": "What the marks mean" }, entries);
  }

  return { createView };
})();
