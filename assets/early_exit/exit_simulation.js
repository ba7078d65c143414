// What the exit rule would have done to the map run as far as it is known: kept up to date as tokens come.
SpecViz.exitSimulation = (() => {
  const { exitRule, exitBench } = SpecViz;

  /**
   * @returns {{follow(state), choose(changes), adopt(state), rule, exits, outcome, curve()}} `follow` takes in what is new
   *   in a map run; `choose` changes measure, threshold or minLayer; `adopt` takes them from a run.
   */
  function createSimulation() {
    let state = null;
    let maps = [];
    let confidences = [];
    let chosen = { measure: "top1", threshold: 0.6, minLayer: null };
    let rule = null;
    let exits = [];
    let outcome = null;

    function follow(newState) {
      if (!newState || !newState.run) return reset();
      if (newState !== state) begin(newState);
      for (let index = maps.length; index < state.rounds.length; index += 1) {
        const { map } = state.rounds[index].event;
        if (!map) return update();
        maps.push(map);
        confidences.push(exitRule.confidencesOf(map, chosen.measure, rule.cutSize));
      }
      return update();
    }

    function reset() {
      [state, maps, confidences, rule, exits, outcome] = [null, [], [], null, [], null];
    }

    function begin(newState) {
      reset();
      state = newState;
      rule = ruleOf(exitBench.exitInfoOf(state));
    }

    /** The rule as a run had it. */
    function adopt({ run }) {
      const { measure, threshold, min_layer: minLayer } = run.early_exit;
      choose({ measure: exitRule.MEASURES[measure] ? measure : "top1", threshold: threshold ?? null, minLayer: minLayer ?? null });
    }

    function ruleOf(info) {
      const lowest = Math.min(exitBench.numLayersOf(state), ...info.exit_layers);
      return {
        ...chosen, minLayer: Math.max(lowest, chosen.minLayer ?? lowest), decay: info.threshold_decay || 0, exitLayers: info.exit_layers, numLayers: exitBench.numLayersOf(state),
        cutSize: info.heads.cut_vocab_size, numTokens: state.run.settings.max_new_tokens,
      };
    }

    function choose(changes) {
      const isOtherMeasure = changes.measure && changes.measure !== chosen.measure;
      chosen = { ...chosen, ...changes };
      if (state === null) return;
      rule = ruleOf(exitBench.exitInfoOf(state));
      if (isOtherMeasure) confidences = maps.map((map) => exitRule.confidencesOf(map, chosen.measure, rule.cutSize));
      update();
    }

    function update() {
      exits = exitRule.exitsAt(confidences, rule);
      outcome = exitRule.outcomeOf(maps, exits, rule.numLayers);
    }

    /** The outcome at every threshold of the slider: [{threshold, ...outcome}], "never" last. */
    function curve() {
      if (rule === null) return [];
      return [...exitRule.thresholdsOf(chosen.measure), null].map((threshold) => {
        const at = exitRule.exitsAt(confidences, { ...rule, threshold });
        return { threshold, ...exitRule.outcomeOf(maps, at, rule.numLayers) };
      });
    }

    return {
      follow, choose, adopt, curve,
      get chosen() { return chosen; },
      get rule() { return rule; },
      get exits() { return exits; },
      get outcome() { return outcome; },
      get maps() { return maps; },
      get confidences() { return confidences; },
    };
  }

  return { createSimulation };
})();
