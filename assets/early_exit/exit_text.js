// A run's text beside the full model's: one chip a token, the layer after which it left, and where it says something else.
SpecViz.exitText = (() => {
  const { el, setData, tokenText } = SpecViz.dom;

  /**
   * {node, draw(tokens, {full, isFullOver, layers, numLayers, count})}: only what is new or has changed is made anew.
   * `isFullOver`: the full model's text has ended, and whatever stands after its end differs.
   */
  function createText(label) {
    const chips = el("p", { class: "sv-chips" });
    const node = el("div", { class: "sv-run-text", tabindex: "0", role: "region", "aria-label": label }, chips);
    let signatures = [];

    function draw(tokens, { full = null, isFullOver = false, layers = null, numLayers = 0, count = tokens.length } = {}) {
      const wanted = tokens.slice(0, count).map((token, index) => {
        const differs = full !== null && (full[index] === undefined ? isFullOver : full[index].id !== token.id);
        return { token, differs, layer: layers ? layers[index] : null };
      });
      const signature = wanted.map(({ token, differs, layer }) => `${token.id}|${token.text}|${differs}|${layer}`);
      let same = 0;
      while (same < signature.length && signature[same] === signatures[same]) same += 1;
      while (chips.childNodes.length > same) chips.lastChild.remove();
      chips.append(...wanted.slice(same).map((one) => chip(one, numLayers)));
      if (same < signature.length && signatures.length > 0) node.scrollTop = node.scrollHeight;
      signatures = signature;
      setData(node, "tokens", count);
    }

    return { node, draw };
  }

  function chip({ token, differs, layer }, numLayers) {
    const isEarly = layer !== null && layer < numLayers;
    const node = el(
      "span",
      { class: "sv-chip", dataset: { exit: isEarly ? layer : null, differs: differs ? "1" : null }, style: isEarly ? { "--saved": `${Math.round((100 * (numLayers - layer)) / numLayers)}%` } : {} },
      differs ? el("i", { class: "sv-mark" }, el("span", { class: "sv-hidden" }, "differs: "), el("span", { "aria-hidden": "true" }, "≠")) : null,
      tokenText(token),
      isEarly ? el("sub", { class: "sv-exit-layer" }, el("span", { class: "sv-hidden" }, " after layer "), layer) : null,
    );
    return (token.text || "").includes("\n") ? el("span", { class: "sv-line-end" }, node, el("br")) : node;
  }

  return { createText };
})();
