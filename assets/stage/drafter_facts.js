// What there is to know about a draft head or a draft model: what it reads, what it can say, what its weights take.
// The same words as specviz/trace/sentences.py.
SpecViz.drafterFacts = (() => {
  const { isNumber } = SpecViz.inspection;
  const { counted, capitalized } = SpecViz.sentence;
  const { term } = SpecViz.glossaryTips;
  const MOST_LAYERS = 12; // that a sentence names one by one
  const LONGEST_NAME = 40;

  const isCount = (value) => Number.isInteger(value) && value >= 0;
  const thousands = (number) => number.toLocaleString("en-US");
  const inMillions = (number) => (number / 1e6).toFixed(1);

  /** Facts as lists of parts, each a text or a pair of a glossary name and its text. */
  function factsOf(drafter) {
    const facts = [];
    const { kind, feature_layers: layers, cut_vocab_size: cut, vocab_size: size, says_context: context } = drafter;
    if (kind === "draft_head" && Array.isArray(layers) && layers.length > 0 && layers.every(isCount)) {
      facts.push(["reads the target's ", ["feature_layers", layersIn(layers)]]);
    } else if (kind === "draft_model") {
      facts.push(modelFacts(drafter));
    }
    if (isCount(cut) && isCount(size)) {
      facts.push([["distillation", "trained"], " for this target"]);
      facts.push([["cut_vocab_size", "can say"], ` ${thousands(cut)} of ${thousands(size)} tokens${context === true ? " and those of the text so far" : ""}`]);
    }
    if (isCount(drafter.weight_bytes)) facts.push([weightWords(drafter)]);
    return facts;
  }

  function modelFacts({ num_layers: layers, num_params: params, cut_vocab_size: cut }) {
    const parts = [];
    if (isCount(layers)) parts.push(counted(layers, "layer"));
    if (isCount(params)) parts.push(`${inMillions(params)} million parameters`);
    const named = isCount(cut) ? "a smaller model of the same family" : "a model of its own";
    return [parts.length > 0 ? `${named}: ${parts.join(", ")}` : named];
  }

  function weightWords({ weight_bytes: bytes, shared_weight_bytes: shared, precision, dtype }) {
    const kind = precision || dtype;
    const named = typeof kind === "string" ? `${[...kind].slice(0, LONGEST_NAME).join("")} weights` : "weights";
    const embedding = shared > 0 ? ", beside the target's embedding, which it shares" : ", with a copy of the target's embedding";
    return `${named}, ${inMillions(bytes)} MB (measured)${isCount(shared) ? embedding : ""}`;
  }

  function layersIn(numbers) {
    if (numbers.length > MOST_LAYERS) return `states after ${numbers.length} of its layers`;
    const last = numbers.at(-1);
    return numbers.length > 1 ? `layers ${numbers.slice(0, -1).join(", ")} and ${last}` : `layer ${last}`;
  }

  /** The facts as one sentence on the stage; nothing where there are none. */
  function nodes(drafter) {
    const parts = factsOf(drafter).flatMap((fact, index) => (index > 0 ? ["; ", ...fact] : fact));
    if (parts.length === 0) return [];
    const [first, ...others] = parts;
    const opening = Array.isArray(first) ? [first[0], capitalized(first[1])] : capitalized(first);
    return [opening, ...others, "."].map((part) => (Array.isArray(part) ? term(...part) : part));
  }

  /** The facts as sentences without their full stops. */
  const texts = (drafter) => factsOf(drafter).map((parts) => parts.map((part) => (Array.isArray(part) ? part[1] : part)).join(""));

  /** Why a drafter could not have said a token, where the trace tells: its probability is exactly 0, and the vocabulary is cut. */
  function whyNeverDrafted({ cut_vocab_size: cut, vocab_size: size, says_context: context }, token) {
    if (!isCount(cut) || !isCount(size) || !token || !isNumber(token.draft_prob) || token.draft_prob !== 0) return "";
    const words = SpecViz.sentence.quoted(token);
    const nor = context === true ? " and does not stand in the text before" : "";
    return `The drafter could not have said ${words}: it is not among the ${thousands(cut)} of ${thousands(size)} tokens that it knows${nor}, so its draft probability is 0.`;
  }

  return { nodes, texts, whyNeverDrafted };
})();
