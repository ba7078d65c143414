// The exit rule, and what it would have done to the tokens of a map run: the same arithmetic as
// specviz/early_exit/simulate.py. Pure; what comes out of it is simulated, not measured.
//
// A rule is {measure, threshold, minLayer, decay, exitLayers, numLayers, cutSize, numTokens}; a threshold of null never exits.
SpecViz.exitRule = (() => {
  // `lowest` and `steps`: what the slider offers. Every confidence is higher where the model is surer.
  const MEASURES = {
    top1: { word: "top-1 probability", lowest: 0, steps: 100 },
    gap: { word: "gap of top two", lowest: 0, steps: 100 },
    entropy: { word: "entropy", lowest: 0, steps: 100 },
    saturation: { word: "saturation", lowest: 0.5, steps: 100 },
  };
  const DIGITS = 10_000;
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

  /** A reading as a confidence; the trace holds entropy in nats. Null where the layer cannot be read, which counts as 0. */
  function confidenceOf(measure, reading, cutSize) {
    if (!isNumber(reading)) return null;
    return measure === "entropy" ? suretyOf(reading, cutSize) : reading;
  }

  /** An entropy over so many tokens as a confidence, rounded as traces are. */
  function suretyOf(nats, numTokens) {
    return numTokens > 1 ? Math.floor((1 - nats / Math.log(numTokens)) * DIGITS + 0.5) / DIGITS : 1;
  }

  /** The confidences of one token of a map run, layer by layer (index 0 is layer 1). */
  function confidencesOf(map, measure, cutSize) {
    return (map.measures[measure] || []).map((reading) => confidenceOf(measure, reading, cutSize));
  }

  /** The threshold in force at token `index`: it may fall as the text grows, to nine tenths of itself. */
  function thresholdAt({ threshold, decay = 0, numTokens }, index) {
    if (threshold === null || !decay) return threshold;
    return threshold * (0.9 + 0.1 * Math.exp((-decay * index) / numTokens));
  }

  /** The layers at which a rule looks. */
  const layersLookedAt = ({ exitLayers, minLayer, numLayers }) => exitLayers.filter((layer) => layer >= minLayer && layer < numLayers);

  /** For each token (its confidences by layer) the layer after which it leaves; `numLayers` where it does not. */
  function exitsAt(confidences, rule) {
    const layers = layersLookedAt(rule);
    return confidences.map((own, index) => {
      const threshold = thresholdAt(rule, index);
      if (threshold === null) return rule.numLayers;
      return layers.find((layer) => (own[layer - 1] ?? 0) >= threshold) ?? rule.numLayers;
    });
  }

  /** {numTokens, layersRun, meanLayers, layersSaved, numSame, agreement}; ratios without a denominator are null. */
  function outcomeOf(maps, exits, numLayers) {
    const layersRun = exits.reduce((sum, layer) => sum + layer, 0);
    const numSame = exits.reduce((sum, layer, index) => sum + (maps[index].ids[layer - 1] === maps[index].ids[numLayers - 1] ? 1 : 0), 0);
    const numTokens = exits.length;
    const meanLayers = numTokens > 0 ? layersRun / numTokens : null;
    return {
      numTokens, layersRun, numSame, meanLayers,
      layersSaved: meanLayers === null ? null : 1 - meanLayers / numLayers,
      agreement: numTokens > 0 ? numSame / numTokens : null,
    };
  }

  /** The slider's thresholds, rising; after the last comes "never". */
  function thresholdsOf(measure) {
    const { lowest, steps } = MEASURES[measure];
    return Array.from({ length: steps + 1 }, (_, step) => Number((lowest + ((1 - lowest) * step) / steps).toFixed(4)));
  }

  return { MEASURES, confidenceOf, confidencesOf, thresholdAt, layersLookedAt, exitsAt, outcomeOf, thresholdsOf };
})();
