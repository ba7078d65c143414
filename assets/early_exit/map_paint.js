// Paints the part of the map that is in sight on a canvas: cells by confidence, exits, what was not needed, the cursor.
SpecViz.mapPaint = (() => {
  const { stepOf } = SpecViz.mapPalette;
  const { piecesOf } = SpecViz.pieces;
  const WIDEST_LABEL = 40; // characters that are ever measured

  /** What a token looks like in a cell, as one short line. */
  function labelOf(text) {
    if (text === null || text === undefined) return "";
    return piecesOf({ text: [...text].slice(0, WIDEST_LABEL).join("") }).map((piece) => piece.text).join("");
  }

  /**
   * @param look {geometry, palette, maps, confidences, exits, rule, lowest, layersLookedAt, tokens, cursor, scrollLeft, width, scale}
   */
  function paint(context, look) {
    const { geometry, width, palette, maps, scrollLeft } = look;
    context.fillStyle = palette.ground;
    context.fillRect(0, 0, width, geometry.height);
    const [first, end] = geometry.visible(scrollLeft, width, maps.length);
    context.save();
    context.beginPath();
    context.rect(geometry.gutter - 1, 0, width - geometry.gutter + 1, geometry.height);
    context.clip();
    context.translate(-scrollLeft, 0);
    for (let index = first; index < end; index += 1) paintToken(context, look, index);
    for (let index = first; index < end; index += 1) paintExit(context, look, index);
    paintCursor(context, look);
    context.restore();
    paintGutter(context, look);
  }

  function paintToken(context, look, index) {
    const { geometry, palette, confidences, maps, exits, lowest, scale } = look;
    const { column, row, numLayers, form } = geometry;
    const left = geometry.left(index);
    const gap = form === "words" ? 1.5 : 1;
    const readings = confidences[index];
    context.textBaseline = "middle";
    context.textAlign = "center";
    const [regular, strong] = [400, 700].map((weight) => `${weight} ${Math.round(11.5 * scale)}px ${palette.mono}`);
    for (let layer = numLayers; layer >= 1; layer -= 1) {
      const top = geometry.top(layer);
      const confidence = readings[layer - 1];
      const isSkipped = layer > exits[index];
      if (confidence === null || confidence === undefined) {
        context.fillStyle = palette.soft;
        context.fillRect(left, top, column - gap, row - gap);
        continue;
      }
      const step = stepOf(confidence, lowest);
      context.fillStyle = isSkipped ? palette.soft : palette.fills[step];
      context.fillRect(left, top, column - gap, row - gap);
      if (form === "words") {
        context.fillStyle = isSkipped ? palette.faint : palette.inks[step];
        context.font = !isSkipped && palette.inks[step] === palette.ground ? strong : regular; // a thin letter in the ground's colour is lost
        fillLabel(context, labelOf(maps[index].texts[layer - 1]), left + column / 2, top + row / 2, column - 8);
      }
    }
    if (exits[index] < numLayers) strikeSkipped(context, look, index, left);
    paintHead(context, look, index, left);
  }

  /** Layers that would not be run: struck through, from over the exit to the top. */
  function strikeSkipped(context, { geometry, palette, exits }, index, left) {
    const { column, numLayers, row } = geometry;
    const [top, bottom] = [geometry.top(numLayers), geometry.top(exits[index]) - 2];
    context.strokeStyle = palette.hatch;
    context.lineWidth = 1;
    context.save();
    context.beginPath();
    context.rect(left, top, column - 1.5, bottom - top);
    context.clip();
    context.beginPath();
    const rise = column * 0.35;
    for (let at = top - rise; at < bottom; at += Math.max(6, row * 0.5)) {
      context.moveTo(left, at + rise);
      context.lineTo(left + column, at);
    }
    context.stroke();
    context.restore();
  }

  /** The full model's token, over its column. */
  function paintHead(context, { geometry, palette, tokens, scale, cursor }, index, left) {
    const { column, head, form } = geometry;
    const token = tokens[index];
    const isUnderCursor = cursor !== null && cursor.index === index;
    context.fillStyle = palette.ink;
    context.font = `${isUnderCursor ? 700 : 500} ${Math.round((form === "words" ? 13.5 : 11) * scale)}px ${palette.mono}`;
    const label = labelOf(token ? token.text : "");
    if (form === "words") {
      fillLabel(context, label, left + column / 2, head / 2, column - 4);
      return;
    }
    context.save();
    context.translate(left + column / 2, head - 5);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    fillLabel(context, label, 0, 0, head - 8);
    context.restore();
  }

  /** A label that is too wide ends in an ellipsis. */
  function fillLabel(context, label, x, y, room) {
    if (label === "") return;
    let shown = label;
    if (context.measureText(shown).width > room) {
      const share = room / context.measureText(shown).width;
      shown = `${[...label].slice(0, Math.max(1, Math.floor([...label].length * share) - 1)).join("")}…`;
    }
    context.fillText(shown, x, y);
  }

  /** A frame around the cell at which the token leaves: closed where it says what the full model says, broken where not. */
  function paintExit(context, { geometry, palette, maps, exits, scale }, index) {
    const { column, row, numLayers, form } = geometry;
    const layer = exits[index];
    if (layer === undefined || layer === numLayers) return;
    const isSame = maps[index].ids[layer - 1] === maps[index].ids[numLayers - 1];
    const [left, top] = [geometry.left(index), geometry.top(layer)];
    const line = (form === "words" ? 2.4 : 2) * scale;
    context.strokeStyle = isSame ? palette.same : palette.other;
    context.lineWidth = line;
    context.setLineDash(isSame ? [] : [3.5 * scale, 2 * scale]);
    context.strokeRect(left + line / 2 - 1, top + line / 2 - 1, column - line + 1, row - line + 1);
    context.setLineDash([]);
    if (form === "cells") {
      if (isSame) return;
      context.fillStyle = palette.other;
      context.fillRect(left + column / 2 - 2 * scale, top + row / 2 - 2 * scale, 4 * scale, 4 * scale);
      return;
    }
    const size = 11 * scale;
    context.fillStyle = isSame ? palette.same : palette.other;
    context.fillRect(left + column - size - 1, top - 1, size, size);
    context.fillStyle = palette.ground;
    context.font = `700 ${Math.round(10 * scale)}px ${palette.sans}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(isSame ? "✓" : "≠", left + column - size / 2 - 1, top + size / 2 - 0.5);
  }

  function paintCursor(context, { geometry, palette, cursor, scale }) {
    if (cursor === null) return;
    context.strokeStyle = palette.focus;
    context.lineWidth = 3 * scale;
    context.strokeRect(geometry.left(cursor.index) - 1, geometry.top(cursor.layer) - 1, geometry.column, geometry.row);
    context.strokeStyle = palette.ink;
    context.lineWidth = 1;
    context.strokeRect(geometry.left(cursor.index) - 2.5, geometry.top(cursor.layer) - 2.5, geometry.column + 3, geometry.row + 3);
  }

  /** The layers' numbers; those at which the rule looks are strong, and pointed at. */
  function paintGutter(context, { geometry, palette, layersLookedAt, cursor, scale }) {
    const { gutter, row, numLayers } = geometry;
    const isTight = row < 14 * scale;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let layer = 1; layer <= numLayers; layer += 1) {
      const isExit = layersLookedAt.includes(layer);
      const isNow = cursor !== null && cursor.layer === layer;
      if (isTight && !isExit && !isNow && layer !== numLayers && layer !== 1) continue;
      context.fillStyle = isExit || isNow || layer === numLayers ? palette.ink : palette.muted;
      context.font = `${isExit || isNow ? 700 : 400} ${Math.round((isTight ? 10.5 : 12) * scale)}px ${palette.sans}`;
      context.fillText(isExit ? `${layer} ▸` : `${layer}\u2003`, gutter - 5 * scale, geometry.top(layer) + row / 2);
    }
  }

  return { paint, labelOf };
})();
