// The die against the ratio: a bar from 0 to 1, filled as far as the token may go, and a needle where the die fell.
SpecViz.diceGauge = (() => {
  const { el } = SpecViz.dom;

  function gauge(u, chance) {
    const passed = u < chance;
    return el(
      "span",
      { class: "sv-gauge", "aria-hidden": "true", dataset: { passed: passed ? "1" : "0" }, style: { "--chance": chance, "--u": u } },
      el("i", { class: "sv-gauge-zone" }),
      el("i", { class: "sv-needle" }),
    );
  }

  return { gauge };
})();
