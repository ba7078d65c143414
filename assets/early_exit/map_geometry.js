// Where a cell of the map lies. Layers rise from the bottom, tokens go from left to right; the gutter with the
// layers' numbers stays where it is while the rest scrolls. Pure numbers, in CSS pixels.
SpecViz.mapGeometry = (() => {
  const FORMS = {
    words: { column: 72, row: 17, head: 25 }, // each cell holds what its layer would say
    cells: { column: 15, row: 11, head: 84 }, // the head holds the words, standing
  };
  const GUTTER = 46;

  /** @param form "words" or "cells"; @param numLayers of the model; @param scale of the type around it */
  function createGeometry(form, numLayers, scale = 1) {
    const { column, row, head } = Object.fromEntries(Object.entries(FORMS[form]).map(([name, size]) => [name, Math.round(size * scale)]));
    const gutter = Math.round(GUTTER * scale);
    const height = head + numLayers * row + 1;
    return {
      form, numLayers, column, row, head, gutter, height,
      widthOf: (numTokens) => gutter + numTokens * column + 2,
      left: (index) => gutter + index * column,
      top: (layer) => head + (numLayers - layer) * row,
      /** The tokens in sight: [first, end). */
      visible: (scrollLeft, width, numTokens) => [
        Math.max(0, Math.floor(scrollLeft / column)),
        Math.max(0, Math.min(numTokens, Math.ceil((scrollLeft + width - gutter) / column))),
      ],
      /** {index, layer} under a point of the window on the map; null beside the cells. */
      cellAt(x, y, scrollLeft, numTokens) {
        const index = Math.floor((x - gutter + scrollLeft) / column);
        const layer = Math.min(numLayers, numLayers - Math.floor((y - head) / row)); // over the top: the last layer
        const isInside = x >= gutter && y >= 0 && index >= 0 && index < numTokens && layer >= 1;
        return isInside ? { index, layer } : null;
      },
    };
  }

  return { createGeometry };
})();
