// The inspector in words: what happened to a token, and why something is not known about it.
SpecViz.inspectionWords = (() => {
  const { quoted, counted, capitalized } = SpecViz.sentence;
  const { isNumber } = SpecViz.inspection;

  const NEVER_JUDGED = {
    discarded: "never judged: a token before it was rejected, so its prefix was void",
    cut: "never judged: generation had stopped before it",
  };
  const WHY_A_SIDE_IS_MISSING = {
    ...NEVER_JUDGED,
    no_draft: "nothing was drafted at this position",
    no_distribution: "prompt lookup has no distribution: it copies what stood earlier in the text",
    not_reported: "the server does not report it",
    not_recorded: "not recorded in this trace",
  };
  const ORDINALS = ["1st", "2nd", "3rd"];

  /** A probability with three digits that count. */
  function exact(value) {
    if (!isNumber(value)) return "not recorded";
    if (value === 0 || value === 1) return String(value);
    if (value > 1) return value >= 1000 ? ">999" : value.toPrecision(3);
    if (value > 0.9995) return ">0.999";
    if (value >= 0.01) return value.toFixed(3);
    return value >= 0.001 ? value.toPrecision(3) : value.toExponential(1);
  }

  const ordinal = (number) => ORDINALS[number - 1] || `${number}th`;

  /** "round 6, 3rd of 4 drafted, position 59" */
  function placeOf({ round, place, numDrafted, position, isExtra }) {
    const parts = [`round ${round}`];
    if (!isExtra) parts.push(`${ordinal(place)} of ${numDrafted} drafted`);
    if (position !== null) parts.push(`position ${position}`);
    return parts.join(", ");
  }

  /** What became of the token, and why, as a sentence. */
  function verdictSentence(inspection) {
    return `${capitalized(VERDICTS[inspection.verdict.kind](inspection))}.`;
  }

  const VERDICTS = {
    void: ({ verdict }) => NEVER_JUDGED[verdict.why],
    unknown: ({ origin }) => `${origin || "a verdict"}; how it was judged is not recorded in this trace`,
    own: ownWords,
    greedy: ({ verdict: { favourite, isSame } }) => {
      if (!favourite) return "compared with the target's most probable token, which is not recorded in this trace";
      if (isSame) return `the target's most probable token here is ${quoted(favourite)} too: accepted`;
      return `the target's most probable token here is ${quoted(favourite)}, not this one: rejected`;
    },
    sampled: ({ verdict: { u, chance, passed } }) =>
      passed
        ? `the die fell on ${exact(u)}, below the ratio ${exact(chance)}: accepted`
        : `the die fell on ${exact(u)}, not below the ratio ${exact(chance)}: rejected`,
  };

  function ownWords({ verdict: { origin, u }, residual, numDrafted, exit }) {
    if (exit) return exit.layer < exit.numLayers ? `the token left after layer ${exit.layer} of ${exit.numLayers}: nothing checked it` : `the token went through all ${exit.numLayers} layers`;
    if (origin === "bonus") return `all ${numDrafted} drafted tokens were accepted, and the same pass gave this one on top`;
    if (origin === "plain") return "nothing was drafted, so the target said this one by itself";
    if (origin !== "correction") return "the target added this one";
    if (residual) return "the target's token in place of the rejected one, drawn from the residual";
    return isNumber(u) ? "the target's token in place of the rejected one" : "the target's most probable token, in place of the rejected one";
  }

  /** How the ratio came about: "0.0166 (target) / 1 (drafter) = 0.0166" */
  function ratioWords({ ratio, targetUsed, draftUsed, isCertain }) {
    if (ratio === null) return "its two sides are not recorded in this trace";
    const drafter = isCertain ? "drafter, certain of its copy" : "drafter";
    const clamped = ratio > 1 ? ", so it passes whatever the die says" : "";
    return `${exact(targetUsed)} (target) / ${exact(draftUsed)} (${drafter}) = ${exact(ratio)}${clamped}`;
  }

  /** What the distributions on show are, where the test used other ones. */
  function adjustmentNote({ temperature, top_k: topK, top_p: topP }) {
    const parts = [];
    if (isNumber(temperature) && temperature > 0 && temperature !== 1) parts.push(`temperature ${temperature}`);
    if (isNumber(topK) && topK > 0) parts.push(`top\u2011k ${topK}`);
    if (isNumber(topP) && topP < 1) parts.push(`top\u2011p ${topP}`);
    const shown = "The models' own probabilities, at temperature 1";
    return parts.length > 0 ? `${shown}; the test used them after ${parts.join(", ")}.` : `${shown}.`;
  }

  /** One sentence about the whole verification pass. */
  function passSentence({ numCached, rows }) {
    const cached = numCached === null ? "all cached positions" : counted(numCached, "cached position");
    if (rows.length === 1) return `One pass over one token, which sees ${cached} and itself.`;
    return `All ${rows.length} rows go through the target in one pass. Each sees ${cached}, itself and the fed tokens before it, and none after it. The framed row is this token's.`;
  }

  /** What a row's output was used for. */
  function outcomeWords({ token, status, kind, unused }) {
    if (unused) return unused === "discarded" ? "void" : "not used";
    return kind ? `says ${quoted(token)}, ${kind}` : `judges ${quoted(token)}: ${status}`;
  }

  function rowWords(row) {
    const where = row.position === null ? "" : `, position ${row.position}`;
    return `${quoted(row.token)}${row.isPending ? " (pending)" : ""}${where}: ${outcomeWords(row.gives)}`;
  }

  /** The picture of the mask, for those who do not see it. */
  const passDescription = (pass) => `${passSentence(pass)} ${pass.rows.map(rowWords).join("; ")}.`;

  return {
    exact, placeOf, verdictSentence, ratioWords, adjustmentNote, passSentence, passDescription, NEVER_JUDGED, WHY_A_SIDE_IS_MISSING,
  };
})();
