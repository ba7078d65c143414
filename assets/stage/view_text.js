// The text so far: one chip a token, its origin by colour, mark and title.
SpecViz.textView = (() => {
  const { el, setData, setText, tokenText } = SpecViz.dom;
  const { ORIGINS } = SpecViz.vocabulary;
  const { spoken } = SpecViz.pieces;
  const SHORT_PROMPT = 16; // tokens; a longer one starts folded

  function createView() {
    const promptButton = el("button", { class: "sv-fold", type: "button", "aria-expanded": "false" });
    const promptText = el("span", { class: "sv-prompt-text" });
    const promptChips = el("span", { class: "sv-prompt-chips" });
    const prompt = el("p", { class: "sv-prompt" }, promptButton, promptText, promptChips);
    const chips = el("p", { class: "sv-chips" });
    const scroll = el("div", { class: "sv-text-scroll", tabindex: "0", role: "region", "aria-label": "Text so far" }, prompt, chips);
    const numTokens = el("span", { class: "sv-muted" });
    const heading = el("div", { class: "sv-zone-head" }, el("h2", {}, "Text so far"), numTokens, legend());
    const node = el("section", { class: "sv-text" }, heading, scroll);

    let shownRun = null;
    let isUnfolded = false;
    let shown = []; // the tokens that have chips, in order

    promptButton.addEventListener("click", () => unfold(!isUnfolded));

    function unfold(value) {
      isUnfolded = value;
      promptButton.setAttribute("aria-expanded", String(value));
      setData(prompt, "unfolded", value ? "1" : null);
    }

    function drawPrompt(state) {
      if (state.run === shownRun) return;
      shownRun = state.run;
      promptChips.replaceChildren(...state.prompt.map(chip));
      setText(promptText, state.run ? state.run.prompt.text : "");
      setText(promptButton, `Prompt, ${state.prompt.length} tokens`);
      promptButton.hidden = !state.run;
      unfold(state.prompt.length > 0 && state.prompt.length <= SHORT_PROMPT);
    }

    /** Chips come and go at the end only; what stands stays untouched. */
    function drawChips(tokens, count) {
      let same = Math.min(shown.length, count);
      while (same > 0 && shown[same - 1] !== tokens[same - 1]) same -= 1;
      while (chips.childElementCount > same) chips.lastElementChild.remove();
      for (let i = same; i < count; i += 1) chips.append(chip(tokens[i]));
      shown = tokens.slice(0, count);
      return count !== same || same !== shown.length;
    }

    function markNewest(from) {
      for (const old of chips.querySelectorAll("[data-new]")) delete old.dataset.new;
      for (let i = from; i < chips.childElementCount; i += 1) chips.children[i].dataset.new = "1";
    }

    function draw(state, frame) {
      drawPrompt(state);
      const before = chips.childElementCount;
      drawChips(state.tokens, frame.numTokens);
      markNewest(frame.newFrom);
      setText(numTokens, `${frame.numTokens} new token${frame.numTokens === 1 ? "" : "s"}`);
      if (chips.childElementCount !== before) scroll.scrollTop = scroll.scrollHeight;
    }

    return { node, draw };
  }

  function chip(token) {
    const origin = ORIGINS[token.origin] || ORIGINS.unknown;
    const where = token.round ? `, round ${token.round}` : "";
    const id = token.id === null || token.id === undefined ? "" : `, id ${token.id}`;
    const node = el(
      "span",
      { class: "sv-chip", dataset: { origin: token.origin }, title: `${spoken(token)}: ${origin.word}${where}${id}` },
      origin.glyph ? el("i", { class: "sv-mark", "aria-hidden": "true" }, origin.glyph) : null,
      tokenText(token),
    );
    return (token.text || "").includes("\n") ? el("span", { class: "sv-line-end" }, node, el("br")) : node;
  }

  function legend() {
    const entries = ["accepted", "correction", "bonus", "plain"].map((name) =>
      el(
        "li",
        { title: ORIGINS[name].means },
        el("span", { class: "sv-chip", dataset: { origin: name } }, el("i", { class: "sv-mark", "aria-hidden": "true" }, ORIGINS[name].glyph), ORIGINS[name].word),
      ),
    );
    return el("ul", { class: "sv-legend", "aria-label": "What the marks mean" }, entries);
  }

  return { createView };
})();
