// The tab in words: what a layer would have said, what a rule would have saved, and how the two ideas differ.
SpecViz.exitWords = (() => {
  const { quoted, counted } = SpecViz.sentence;
  const { isNumber } = SpecViz.inspection;

  const WAYS = {
    plain: { name: "Plain decoding", kind: "every token through every layer", isVerified: null },
    early_exit: { name: "Early exit", kind: "unverified: the text may change", isVerified: false },
    self_speculation: { name: "Self-speculation", kind: "verified: the text cannot change", isVerified: true },
    drafted: { name: "Draft speculation", kind: "verified: the text cannot change", isVerified: true },
  };

  const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(100 * share)}%`);
  const layersText = (mean) => (mean === null || mean === undefined ? "–" : mean.toFixed(1));

  /** Four digits at most, without the zeros that say nothing. */
  const shortNumber = (value) => (isNumber(value) ? String(Number(value.toFixed(3))) : "not readable");

  const thresholdText = (threshold) => (threshold === null ? "never" : threshold.toFixed(threshold * 100 === Math.round(threshold * 100) ? 2 : 3));

  /** A run's rule in a few words: "entropy ≥ 0.60", "saturation, never exits". */
  function ruleWords({ measure, threshold }) {
    const { word } = SpecViz.exitRule.MEASURES[measure] || { word: measure };
    return typeof threshold === "number" ? `${word} ≥ ${thresholdText(threshold)}` : `${word}, never exits`;
  }

  /** "23.4 of 30 layers a token: 22% saved" */
  function savingWords({ meanLayers, layersSaved, numTokens }, numLayers) {
    if (meanLayers === null) return "no token yet";
    return `${layersText(meanLayers)} of ${numLayers} layers a token, ${percent(layersSaved)} saved, over ${counted(numTokens, "token")}`;
  }

  /** "54 of 60 tokens (90%) are what the full model says" */
  function agreementWords({ numSame, numTokens, agreement }) {
    return numTokens === 0 ? "" : `${numSame} of ${counted(numTokens, "token")} (${percent(agreement)}) are what the full model says`;
  }

  /** What became of a layer under the rule: {kind, words}. */
  function fateOf({ layer, exit, numLayers, isLookedAt, confidence, threshold, canExit }) {
    if (layer > exit) return { kind: "skipped", words: `not needed: the token has left after layer ${exit}` };
    if (layer === numLayers) return { kind: "last", words: "the last layer: what it says is what the full model says" };
    if (layer === exit) return { kind: "exit", words: `the token leaves here: ${shortNumber(confidence)} reaches ${thresholdText(threshold)}` };
    if (!isLookedAt) return { kind: "unread", words: canExit ? "below the minimum layer, so nobody asks here" : "not an exit layer, so nobody asks here" };
    return { kind: "stays", words: threshold === null ? "the rule never exits" : `not sure enough: ${shortNumber(confidence)} is below ${thresholdText(threshold)}` };
  }

  /** One cell of the map as a sentence for a screen reader. */
  function cellSentence({ token, layer, numLayers, index, says, isSame, fate, measures }) {
    const said = says === null ? "cannot be read out" : `would say ${quoted(says)}, ${isSame ? "as" : "not what"} the full model says`;
    return `Token ${index + 1}, ${quoted(token)}, after layer ${layer} of ${numLayers}: ${said}. ${measures}. ${fate.words}.`;
  }

  return { WAYS, percent, layersText, shortNumber, thresholdText, ruleWords, savingWords, agreementWords, fateOf, cellSentence };
})();
