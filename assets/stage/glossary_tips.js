// Words that explain themselves: a term shows what it means under the pointer, on focus and on touch.
// The texts come from specviz/glossary.py, as `SpecViz.glossary`.
SpecViz.glossaryTips = (() => {
  const { el } = SpecViz.dom;

  /** The words of a term, as they stand on the stage; `name` is any of its names in the glossary. */
  function term(name, ...children) {
    if (!SpecViz.glossary[name]) return el("span", {}, children);
    return el("dfn", { class: "sv-term", dataset: { term: name }, tabindex: "0" }, children);
  }

  /** A term again: it explains itself under the pointer, and is not one more tab stop. */
  function hint(name, ...children) {
    return el("span", { dataset: { term: SpecViz.glossary[name] ? name : null } }, children);
  }

  /** Listens on `node`, the stage. */
  function listen(node) {
    const heading = el("strong");
    const meaning = el("span");
    const others = el("span", { class: "sv-muted" });
    const bubble = SpecViz.floating.createBubble("sv-tip", [heading, meaning, others]);
    node.append(bubble.node);

    bubble.follow(node, "[data-term]", (anchor) => {
      const entry = SpecViz.glossary[anchor.dataset.term];
      if (!entry) return false;
      heading.textContent = entry.term;
      meaning.textContent = entry.meaning;
      others.textContent = entry.synonyms.length > 0 ? `Others say: ${entry.synonyms.join("; ")}` : "";
      return true;
    });
  }

  return { term, hint, listen };
})();
