// Was it worth it, and is it the same text? Only what was checked and measured is claimed.
SpecViz.proofView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { term } = SpecViz.glossaryTips;
  const { quotedText } = SpecViz.sentence;
  const { speedupOf, verdictOf } = SpecViz.figures;
  const FEWEST_TOKENS = 8; // a speed over fewer is chance
  const ANSWERS = { faster: "true", slower: "false", "as fast": null };

  function createView() {
    const identity = el("dd", { dataset: { proof: "identity" } });
    const speedup = el("dd", { dataset: { proof: "speedup" } });
    const node = el(
      "section",
      { class: "sv-proof", "aria-label": "Was it worth it?" },
      el("dl", {}, el("div", {}, el("dt", {}, term("identity", "Identical"), " to ", term("plain", "plain decoding")), identity), el("div", {}, el("dt", {}, term("walltime_speedup", "Speedup"), " over plain decoding"), speedup)),
    );

    function draw(state, { runWords }) {
      setText(identity, identityText(state, runWords));
      setData(identity, "answer", state.identity ? String(state.identity.identical) : null);
      const factor = speedupOf(state);
      const isClear = factor !== null && isLongEnough(state);
      setText(speedup, isClear ? speedupText(factor, state.identity) : unmeasuredText(state, factor));
      setData(speedup, "answer", isClear ? ANSWERS[verdictOf(factor)] : null);
    }

    return { node, draw };
  }

  /** A check was asked for, and the run that it belongs to has not come to it yet. */
  function isAwaited({ run, finished, failed, identity, isWhole }) {
    return Boolean(run && run.check && !identity && !failed && !isWhole && (!finished || finished.reason !== "cancelled"));
  }

  function isLongEnough({ finished }) {
    return !finished || finished.counts.committed >= FEWEST_TOKENS;
  }

  function unmeasuredText(state, factor) {
    if (state.run && state.run.mode === "plain") return "this is plain decoding";
    if (factor !== null) return `not measured: ${state.finished.counts.committed} tokens are too few`;
    return isAwaited(state) ? "measured when the run is over" : "not measured";
  }

  function identityText(state, runWords) {
    const { identity } = state;
    if (!identity) return isAwaited(state) ? "compared when the run is over" : `not checked in ${runWords}`;
    if (identity.identical === true) return `yes, checked in ${runWords}`;
    if (identity.identical === null) return `not comparable (${identity.why})`;
    return `no; ${differenceText(identity.first_difference, runWords)}`;
  }

  function differenceText({ position, texts, top2_gap: gap, dtype }, runWords) {
    const [plain, own] = texts.map((text) => (text === null ? "nothing more" : quotedText(text)));
    const closeness = typeof gap === "number" ? `; the target's top two logits there were ${Number(gap.toPrecision(3))} apart in ${dtype}` : "";
    return `the first difference is at new token ${position + 1}, where plain decoding says ${plain} and ${runWords} said ${own}${closeness}`;
  }

  function speedupText(factor, identity) {
    const { plain_tokens_per_second: plain, again_tokens_per_second: again } = identity;
    const how = typeof again === "number" ? `${again.toFixed(1)} against ${plain.toFixed(1)} tokens/s, both unwatched, one after the other` : `measured against ${plain.toFixed(1)} tokens/s in the same run`;
    return `${factor.toFixed(2)}×, ${verdictOf(factor)}; ${how}`;
  }

  return { createView };
})();
