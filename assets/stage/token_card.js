// The card of a token, beside it under the pointer or on focus: where it stands, what it is, how probable
// the two models found it. Of a round that is still being acted out it tells what has happened, and no more.
SpecViz.tokenCard = (() => {
  const { el, setData, setText, tokenText } = SpecViz.dom;
  const { STATUSES, ORIGINS } = SpecViz.vocabulary;
  const { inspect, addressOf, isNumber } = SpecViz.inspection;
  const { placeOf, exact } = SpecViz.inspectionWords;

  /** {token, mark, place, bars, hint} of the token with this key; `frame` is the moment on show. */
  function cardOf(state, key, frame) {
    const address = addressOf(key);
    if (address.round === "prompt") return promptCard(state, address.place);
    const inspection = inspect(state, address);
    if (!inspection) return null;
    const { token, isExtra, origin } = inspection;
    const seen = seenOf(inspection, frame);
    const known = isExtra ? ORIGINS[origin] || ORIGINS.unknown : STATUSES[origin];
    return {
      token,
      origin: seen.verdict ? origin : null,
      mark: seen.verdict && known ? `${known.glyph} ${known.word}` : "not judged yet",
      place: placeOf(inspection) + (token.looked_up ? ", looked up in the text" : "") + exitWords(inspection.exit),
      bars: [
        ...(isNumber(token.draft_prob) ? [{ whose: "drafter", prob: token.draft_prob }] : []),
        ...(seen.target && isNumber(token.target_prob) ? [{ whose: "target", prob: token.target_prob }] : []),
      ],
      canInspect: true,
    };
  }

  const exitWords = (exit) => (exit === null ? "" : exit.layer < exit.numLayers ? `, left after layer ${exit.layer} of ${exit.numLayers}` : `, all ${exit.numLayers} layers`);

  function promptCard(state, index) {
    const token = state.prompt[index];
    if (!token) return null;
    const { reused = 0 } = state.run.prompt;
    const kept = index < reused ? ", its KV kept from an earlier turn" : "";
    return { token, origin: "prompt", mark: ORIGINS.prompt.word, place: `position ${index}${kept}`, bars: [], canInspect: false };
  }

  /** What the moment on show has told of this token. */
  function seenOf({ round, place, isExtra, origin }, frame) {
    const { progress } = frame;
    if (!frame.round || frame.round.number !== round || frame.isOver) return { target: true, verdict: true };
    if (isExtra) return { target: progress.verified, verdict: progress.landed };
    const isUnjudged = origin === "discarded" || origin === "cut";
    return { target: progress.verified, verdict: isUnjudged ? progress.rolledBack : progress.judged >= place };
  }

  /** Listens on `root` for everything that carries `data-token`; `look()` gives the state and the frame on show. */
  function listen(node, root, look) {
    const text = el("span", { class: "sv-card-token" });
    const mark = el("span", { class: "sv-card-mark" });
    const place = el("span", { class: "sv-muted" });
    const bars = el("span", { class: "sv-card-bars" });
    const hint = el("span", { class: "sv-muted sv-card-hint" }, "click or Enter: look inside");
    const bubble = SpecViz.floating.createBubble("sv-card", [el("span", { class: "sv-card-head" }, text, mark), place, bars, hint], { isAbove: true });
    node.append(bubble.node);

    bubble.follow(root, "[data-token]", (anchor) => {
      const { state, frame } = look();
      const card = cardOf(state, anchor.dataset.token, frame);
      if (!card) return false;
      text.replaceChildren(tokenText(card.token));
      setText(mark, card.mark);
      setData(mark, "origin", card.origin);
      setText(place, idWords(card));
      bars.replaceChildren(...card.bars.map(bar));
      hint.hidden = !card.canInspect;
      return true;
    });
    return bubble;
  }

  function idWords({ place, token }) {
    return token.id === null || token.id === undefined ? place : `${place}, id ${token.id}`;
  }

  function bar({ whose, prob }) {
    return el(
      "span",
      { class: "sv-card-bar", dataset: { whose } },
      el("span", {}, whose),
      el("i", { class: "sv-bar", "aria-hidden": "true", style: { "--p": prob } }),
      el("span", { class: "sv-number" }, exact(prob)),
    );
  }

  return { cardOf, listen };
})();
