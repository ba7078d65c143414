// What just happened, in plain words; the same words as specviz/trace/sentences.py, with the stage's own signs
// for what cannot be seen.
SpecViz.sentence = (() => {
  const { draftOf, countStatus, numRolledBack } = SpecViz.reducer;
  const { WHY_NOTHING_WAS_DRAFTED, WHY_THE_DRAFT_ENDED_EARLY } = SpecViz.vocabulary;
  const { SIGNS } = SpecViz.pieces;
  const LONGEST_QUOTE = 40;

  /** "3 of 5 accepted; the target would not say ' fox'; it said ' dog'; rolled back 2; kept 4 tokens for one target pass." */
  function ofRound(event) {
    const parts = [...draftParts(event), ...extraParts(event)];
    const withdrawn = numRolledBack(event);
    if (withdrawn > 0) parts.push(`rolled back ${withdrawn}`);
    parts.push(`kept ${counted((event.committed || []).length, "token")} for one target pass`);
    return `${capitalized(parts.join("; "))}.`;
  }

  /** A round of an early-exit run: "Said ' dog' after 21 of 30 layers: 0.731 sure, and 0.600 was enough." */
  function ofExit({ exit, extra }, numLayers) {
    const said = `Said ${quoted(extra || { id: null })} after`;
    const { layer, confidences, threshold } = exit;
    const isAsked = confidences.length > 0 && typeof threshold === "number";
    if (layer < numLayers) {
      const why = isAsked ? `: ${confidences.at(-1).toFixed(3)} sure, and ${threshold.toFixed(3)} was enough` : "";
      return `${said} ${layer} of ${numLayers} layers${why}.`;
    }
    if (!isAsked) return `${said} all ${numLayers} layers.`;
    return `${said} all ${numLayers} layers: at most ${Math.max(...confidences).toFixed(3)} sure before, where ${threshold.toFixed(3)} was asked.`;
  }

  function draftParts(event) {
    const drafted = draftOf(event).length;
    if (drafted === 0) {
      const why = WHY_NOTHING_WAS_DRAFTED[event.draft_stop];
      return [why ? `nothing was drafted, as ${why}` : "nothing was drafted"];
    }
    const lookedUp = draftOf(event)[0].looked_up ? ", looked up in the text" : "";
    const parts = [`${countStatus(event, "accepted")} of ${drafted} accepted${lookedUp}`];
    const numCut = countStatus(event, "cut");
    if (!event.extra) {
      const last = draftOf(event).findLast((token) => token.status === "accepted");
      if (last) parts.push(`generation stopped at ${quoted(last)}`);
    }
    if (numCut > 0) parts.push(`${numCut} drafted after it ${numCut === 1 ? "was" : "were"} never judged`);
    return parts;
  }

  function extraParts(event) {
    const { extra } = event;
    if (!extra) return [];
    if (extra.kind === "bonus") return [`the target added ${quoted(extra)} as a bonus`];
    if (extra.kind === "plain") return [`the target said ${quoted(extra)}`];
    return correctionParts(draftOf(event).find((token) => token.status === "rejected"), extra);
  }

  function correctionParts(rejected, extra) {
    if (!rejected) return [`the target said ${quoted(extra)}`];
    const { u, accept_prob: chance } = rejected;
    if (typeof u !== "number" || typeof chance !== "number") {
      return [`the target would not say ${quoted(rejected)}`, `it said ${quoted(extra)}`];
    }
    return [
      `${quoted(rejected)} lost its throw (${u.toFixed(3)}, and it needed less than ${chance.toFixed(3)})`,
      `the target drew ${quoted(extra)} instead`,
    ];
  }

  /** Why a draft was shorter than asked for; empty when the sentence of the round says it. */
  function draftStopNote(event) {
    return draftOf(event).length > 0 ? WHY_THE_DRAFT_ENDED_EARLY[event.draft_stop] || "" : "";
  }

  /** Before the first round. */
  function ofStart(state) {
    if (!state.run) return "Press Run to watch a model speculate on your own prompt.";
    return `The prompt is ${counted(state.prompt.length, "token")} long, and nothing has been generated yet.`;
  }

  /** A token as a sentence names it: its text in quotes, or its bytes, or its id. */
  function quoted(token) {
    if (token.text) return quotedText(token.text);
    if (token.bytes) return `the bytes ${token.bytes.slice(0, LONGEST_QUOTE)}`;
    return token.id === null || token.id === undefined ? "a token" : `token ${token.id}`;
  }

  function quotedText(text) {
    return `'${shortened(visible(text))}'`;
  }

  /** A sentence as it is set: no line ends at the blank with which a quoted token begins. */
  const asSet = (sentence) => sentence.replace(/(^|[ (])' /g, "$1'\u00a0");

  function shortened(text) {
    const characters = [...text];
    if (characters.length <= LONGEST_QUOTE) return text;
    return `${characters.slice(0, LONGEST_QUOTE).join("")}… (${characters.length} characters)`;
  }

  /** Control characters drawn instead of sent: a line end by the sign that it has everywhere, a direction mark by its number. */
  function visible(text) {
    return [...text].map(visibleCharacter).join("");
  }

  function visibleCharacter(character) {
    const code = character.codePointAt(0);
    if (character !== " " && SIGNS[character]) return SIGNS[character];
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "␡";
    if (character === "\u200c" || character === "\u200d" || !/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(character)) return character;
    return code < 0x10000 ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
  }

  const hex = (number, width) => number.toString(16).padStart(width, "0");
  const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const capitalized = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;

  return { ofRound, ofExit, ofStart, draftStopNote, quoted, quotedText, asSet, counted, capitalized };
})();
