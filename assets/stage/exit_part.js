// The inspector's part about a token of an early-exit run: the layers at which it might have left, and how sure each was.
SpecViz.exitPart = (() => {
  const { el } = SpecViz.dom;
  const { exact } = SpecViz.inspectionWords;
  const { term } = SpecViz.glossaryTips;

  function exitPart({ exit }) {
    if (!exit) return null;
    const { looks, threshold, layer, numLayers } = exit;
    const asked = threshold === null ? "The threshold was never: no layer was asked." : `It leaves at the first layer that reaches ${exact(threshold)}.`;
    return el(
      "section",
      { class: "sv-part sv-part-exit" },
      el("h3", {}, term("exit_confidence", "How sure the layers were")),
      el("ol", { class: "sv-exit-looks" }, looks.map((look) => row(look, layer)), layer === numLayers ? el("li", {}, el("span", {}, `layer ${numLayers}`), el("span", { class: "sv-muted" }, "the last: no question")) : null),
      el("p", { class: "sv-part-note" }, asked, layer < numLayers ? " What the target found probable, below, is what its exit head said there." : ""),
    );
  }

  function row({ layer, confidence }, exitLayer) {
    return el(
      "li",
      { dataset: { exit: layer === exitLayer ? "1" : null } },
      el("span", {}, `layer ${layer ?? "?"}`),
      el("i", { class: "sv-bar", "aria-hidden": "true", style: { "--p": Math.min(1, Math.max(0, confidence)) } }),
      el("span", { class: "sv-number" }, exact(confidence), layer === exitLayer ? ": it left" : ""),
    );
  }

  return { exitPart };
})();
