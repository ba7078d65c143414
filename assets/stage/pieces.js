// A token's text as pieces that can be seen: blanks, line ends and control characters get a sign,
// parts of a character are shown as their bytes.
SpecViz.pieces = (() => {
  const SIGNS = { " ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽" };
  const KINDS = { " ": "blank", "\n": "newline", "\t": "blank", "\r": "blank", "\u00a0": "blank" };

  const isInvisible = (char) => /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/.test(char);
  // Joiners and direction marks shape what stands beside them, so they stay in the text unmarked inside a word.
  const isShaping = (char) => char === "\u200d" || char === "\u200c";

  /** [{kind: "text" | "blank" | "newline" | "control" | "bytes" | "empty", text}] */
  function piecesOf(token) {
    const pieces = [];
    const text = token.text;
    if (text === null || text === undefined) return [{ kind: "bytes", text: token.id === null ? "?" : `#${token.id}` }];
    for (const char of text) addChar(pieces, char);
    if (pieces.length === 0) pieces.push(token.bytes ? bytesPiece(token.bytes) : { kind: "empty", text: "∅" });
    return pieces;
  }

  function addChar(pieces, char) {
    if (SIGNS[char]) pieces.push({ kind: KINDS[char], text: SIGNS[char] });
    else if (isInvisible(char) && !isShaping(char)) pieces.push({ kind: "control", text: codePoint(char) });
    else if (pieces.length > 0 && pieces[pieces.length - 1].kind === "text") pieces[pieces.length - 1].text += char;
    else pieces.push({ kind: "text", text: char });
  }

  const codePoint = (char) => `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

  function bytesPiece(hex) {
    return { kind: "bytes", text: (hex.match(/../g) || [hex]).join(" ").toUpperCase() };
  }

  /** The token in one line of words, for titles and screen readers. */
  function spoken(token) {
    const pieces = piecesOf(token);
    if (pieces.length === 1 && pieces[0].kind === "bytes") return `bytes ${pieces[0].text}`;
    return `“${pieces.map((piece) => (piece.kind === "blank" && piece.text === "·" ? " " : piece.text)).join("")}”`;
  }

  const isPartial = (token) => Boolean(token.bytes);

  return { SIGNS, piecesOf, spoken, isPartial };
})();
