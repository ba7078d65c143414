// What there is to know about the drafter of the run: last, as it is the same in every round.
SpecViz.drafterView = (() => {
  const { el } = SpecViz.dom;

  function createView() {
    const facts = el("p", { class: "sv-muted sv-drafter-facts" });
    const node = el("section", { class: "sv-drafter" }, facts);
    let described = null; // the run whose drafter's facts stand there

    function draw({ run }) {
      if (run !== described || run === null) facts.replaceChildren(...(run ? SpecViz.drafterFacts.nodes(run.drafter) : []));
      described = run;
      node.hidden = facts.childNodes.length === 0;
    }

    return { node, draw };
  }

  return { createView };
})();
