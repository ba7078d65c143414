// The exit rule in the reader's hand: measure, threshold, minimum layer. What it would do to the map stands beside it at
// once, and is marked as simulated; a button runs it for real.
SpecViz.ruleView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { exitRule, exitWords } = SpecViz;
  const { term } = SpecViz.glossaryTips;
  let numViews = 0;

  /** @param onChoose(changes); @param onRun(name): "real" or "beside" */
  function createView({ simulation, onChoose, onRun }) {
    const id = `sv-rule-${(numViews += 1)}`;
    const measures = Object.entries(exitRule.MEASURES).map(([name, { word }]) => {
      const input = el("input", { type: "radio", name: `${id}-measure`, value: name, onChange: () => chooseMeasure(name) });
      return { name, input, node: el("label", { class: "sv-option" }, input, el("span", {}, word)) };
    });
    const threshold = slider("Exit threshold", () => chooseStep(Number(threshold.input.value)));
    const minLayer = slider("Minimum layer", () => onChoose({ minLayer: Number(minLayer.input.value) }));
    const saving = el("p", { class: "sv-outcome", dataset: { figure: "saved" } });
    const savingOf = el("p", { class: "sv-muted" });
    const agreement = el("p", { class: "sv-outcome", dataset: { figure: "agreement" } });
    const agreementOf = el("p", { class: "sv-muted" });
    const real = el("button", { class: "sv-do", type: "button", dataset: { run: "real" }, onClick: () => onRun("real") }, "Run it for real");
    const realOf = el("p", { class: "sv-muted" }, "on the prompt and the settings of the runs that are shown");
    const node = el(
      "section",
      { class: "sv-rule", "aria-label": "Exit rule" },
      el(
        "div",
        { class: "sv-rule-controls" },
        el("fieldset", { class: "sv-measures" }, el("legend", {}, term("exit_confidence", "Confidence measure"), ": the map's colour, and what decides"), measures.map((measure) => measure.node)),
        el("div", { class: "sv-sliders" }, threshold.node, minLayer.node),
      ),
      el(
        "div",
        { class: "sv-rule-outcome" },
        el("p", { class: "sv-kind" }, el("span", { class: "sv-tag", dataset: { kind: "simulated" } }, "simulated"), " from the map, as you move the slider"),
        el("div", { class: "sv-outcomes" }, el("div", {}, saving, savingOf), el("div", {}, agreement, agreementOf)),
        real,
        realOf,
      ),
    );

    const thresholds = () => exitRule.thresholdsOf(simulation.chosen.measure);

    function chooseStep(step) {
      onChoose({ threshold: step >= thresholds().length ? null : thresholds()[step] });
    }

    /** Another measure has another scale: the slider stays where it stands. */
    function chooseMeasure(measure) {
      const step = Number(threshold.input.value);
      const steps = exitRule.thresholdsOf(measure);
      onChoose({ measure, threshold: step >= steps.length ? null : steps[step] });
    }

    function stepOf(value) {
      if (value === null) return thresholds().length;
      return thresholds().reduce((best, one, step, all) => (Math.abs(one - value) < Math.abs(all[best] - value) ? step : best), 0);
    }

    /** @param isBusy: a run goes on; @param canRun: there is somebody to run it */
    function draw({ isBusy, canRun }) {
      const { chosen, rule, outcome } = simulation;
      for (const { name, input } of measures) input.checked = name === chosen.measure;
      threshold.input.max = String(thresholds().length);
      threshold.input.value = String(stepOf(chosen.threshold));
      threshold.say(exitWords.thresholdText(chosen.threshold), chosen.threshold === null ? "never exit" : exitWords.thresholdText(chosen.threshold));
      if (rule !== null) {
        minLayer.input.min = String(Math.min(rule.numLayers, ...rule.exitLayers));
        minLayer.input.max = String(rule.numLayers);
        minLayer.input.value = String(rule.minLayer);
        minLayer.say(`${rule.minLayer} of ${rule.numLayers}`, `layer ${rule.minLayer} of ${rule.numLayers}`);
      }
      tell(outcome, rule);
      real.hidden = realOf.hidden = !canRun;
      real.disabled = isBusy || rule === null;
      setText(real, chosen.threshold === null ? "Run it for real: never exit" : `Run it for real at ${exitWords.thresholdText(chosen.threshold)}`);
      setData(node, "threshold", chosen.threshold === null ? "never" : chosen.threshold);
      setData(node, "measure", chosen.measure);
      setData(node, "minLayer", rule === null ? chosen.minLayer : rule.minLayer);
    }

    function tell(outcome, rule) {
      const isKnown = outcome !== null && outcome.numTokens > 0;
      setText(saving, isKnown ? `${exitWords.percent(outcome.layersSaved)} of the layers saved` : "–");
      setText(savingOf, isKnown ? `${outcome.layersRun} of ${outcome.numTokens * rule.numLayers} run: ${exitWords.layersText(outcome.meanLayers)} of ${rule.numLayers} a token` : "no token yet");
      setText(agreement, isKnown ? `${exitWords.percent(outcome.agreement)} as the full model says` : "–");
      setText(agreementOf, isKnown ? `${outcome.numSame} of ${outcome.numTokens} tokens, each on the full model's own text` : "");
    }

    return { node, draw };
  }

  function slider(label, onInput) {
    const value = el("span", { class: "sv-slider-value" });
    const input = el("input", { type: "range", min: "0", max: "100", step: "1", onInput, "aria-label": label });
    const node = el("label", { class: "sv-slider" }, el("span", { class: "sv-slider-head" }, el("span", { class: "sv-slider-name" }, label), value), input);
    return {
      node, input,
      say(text, spoken) {
        setText(value, text);
        input.setAttribute("aria-valuetext", spoken);
      },
    };
  }

  return { createView };
})();
