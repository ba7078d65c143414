// The map: tokens by layers, as far as the map run has come. It follows the newest token until somebody scrolls back;
// pointer, touch and keys choose a cell, and over the map stands what that layer would have said.
SpecViz.mapView = (() => {
  const { el, setData, setText, tokenText } = SpecViz.dom;
  const { exitRule, exitWords, mapGeometry, mapPaint, mapPalette } = SpecViz;
  const { term } = SpecViz.glossaryTips;
  const NEAR_THE_END = 40; // pixels; a reader who scrolled further back is left there
  const ROOMY = 700; // pixels of map, from which cells have words
  const PAGE = 10; // tokens or layers that PageUp and its like go
  let numMaps = 0;

  function createView({ simulation }) {
    const id = `sv-map-${(numMaps += 1)}`;
    const canvas = el("canvas", { class: "sv-map-canvas", "aria-hidden": "true" });
    const spacer = el("div", { class: "sv-map-spacer" }, canvas);
    const scroll = el(
      "div",
      {
        class: "sv-map-scroll", tabindex: "0", role: "application", "aria-roledescription": "token by layer map", "aria-describedby": `${id}-keys`,
        "aria-label": "Map: tokens from left to right, layers from bottom to top",
      },
      spacer,
    );
    const forms = ["words", "cells"].map((form) => el("button", { class: "sv-choice", type: "button", "aria-pressed": "false", onClick: () => chooseForm(form) }, form === "words" ? "Words" : "Overview"));
    const count = el("span", { class: "sv-muted" });
    const nothing = el("p", { class: "sv-map-nothing" }, "The map grows here, token by token, while the full-depth run goes on.");
    const detail = createDetail();
    const spoken = el("p", { class: "sv-hidden", "aria-live": "polite" });
    const node = el(
      "section",
      { class: "sv-map" },
      el(
        "div",
        { class: "sv-zone-head" },
        el("h2", {}, term("exit_map", "Map run")),
        el("span", { class: "sv-tag" }, "full depth, every layer read out"),
        count,
        el("div", { class: "sv-choices", role: "group", "aria-label": "How much the map shows" }, forms),
      ),
      key(),
      el("p", { class: "sv-hidden", id: `${id}-keys` }, "Arrow keys go from cell to cell, Page Up and Page Down by ten tokens, Home and End to the first and the last token, Escape leaves the cell."),
      detail.node,
      el("div", { class: "sv-map-frame" }, nothing, scroll),
      spoken,
    );

    const context = canvas.getContext("2d");
    let state = null;
    let form = null; // chosen by hand; else by the room there is
    let geometry = null;
    let palette = null;
    let cursor = null; // {index, layer}: chosen
    let hovered = null; // {index, layer}: under the pointer
    let isAtEnd = true;
    let isWaiting = false; // for the next frame

    listen();

    // ---- size, colours ----

    const scaleNow = () => Math.min(1.7, parseFloat(getComputedStyle(node).fontSize) / 16);

    function measure() {
      const width = scroll.clientWidth;
      if (width === 0 || !state || !state.run) return false;
      const wanted = form || (width >= ROOMY ? "words" : "cells");
      const scale = scaleNow();
      geometry = { ...mapGeometry.createGeometry(wanted, state.run.target.num_layers, scale), scale };
      forms.forEach((button, index) => button.setAttribute("aria-pressed", String(["words", "cells"][index] === wanted)));
      palette ??= mapPalette.paletteOf(node);
      const ratio = window.devicePixelRatio || 1;
      const [pixelWidth, pixelHeight] = [Math.round(width * ratio), Math.round(geometry.height * ratio)];
      if (canvas.width !== pixelWidth || canvas.height !== pixelHeight) {
        canvas.width = pixelWidth;
        canvas.height = pixelHeight;
        canvas.style.width = `${width}px`;
        canvas.style.height = `${geometry.height}px`;
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      spacer.style.width = `${Math.max(geometry.widthOf(simulation.maps.length), width)}px`;
      spacer.style.height = `${geometry.height}px`;
      return true;
    }

    function chooseForm(name) {
      form = name;
      draw(state);
      if (cursor) bringIntoSight();
    }

    // ---- drawing ----

    /** The map of `newState`, a map run; the simulation has followed it already. A live one is followed to its newest token. */
    function draw(newState, isLive = false) {
      if (newState !== state) {
        state = newState;
        cursor = hovered = null;
        isAtEnd = isLive;
      }
      const numTokens = simulation.maps.length;
      nothing.hidden = numTokens > 0;
      scroll.hidden = numTokens === 0;
      setText(count, numTokens === 0 ? "" : `${numTokens} token${numTokens === 1 ? "" : "s"} × ${state.run.target.num_layers} layers`);
      setData(node, "tokens", numTokens);
      if (!measure()) return;
      if (isAtEnd && !cursor) scroll.scrollLeft = scroll.scrollWidth;
      paintSoon();
      tell();
    }

    function paintSoon() {
      if (isWaiting) return;
      isWaiting = true;
      requestAnimationFrame(paintNow);
    }

    function paintNow() {
      isWaiting = false;
      if (geometry === null || simulation.rule === null) return;
      const begun = performance.now();
      mapPaint.paint(context, {
        geometry, palette, scale: geometry.scale, maps: simulation.maps, confidences: simulation.confidences, exits: simulation.exits,
        lowest: exitRule.MEASURES[simulation.chosen.measure].lowest, layersLookedAt: exitRule.layersLookedAt(simulation.rule),
        tokens: state.tokens, cursor: hovered || cursor, scrollLeft: scroll.scrollLeft, width: scroll.clientWidth,
      });
      setData(node, "paintMs", (performance.now() - begun).toFixed(1));
      setData(node, "exits", simulation.exits.join(" "));
    }

    // ---- choosing a cell ----

    function listen() {
      scroll.addEventListener("scroll", () => {
        isAtEnd = scroll.scrollWidth - scroll.scrollLeft - scroll.clientWidth < NEAR_THE_END;
        paintSoon();
      });
      scroll.addEventListener("pointermove", (event) => event.pointerType !== "touch" && hover(cellUnder(event)));
      scroll.addEventListener("pointerleave", () => hover(null));
      scroll.addEventListener("click", (event) => choose(cellUnder(event)));
      scroll.addEventListener("keydown", onKey);
      new ResizeObserver(() => state && draw(state)).observe(scroll);
      SpecViz.plotTheme.onChange(node, () => {
        palette = null;
        if (state) draw(state);
      });
    }

    function cellUnder(event) {
      if (geometry === null) return null;
      const at = canvas.getBoundingClientRect();
      return geometry.cellAt(event.clientX - at.left, event.clientY - at.top, scroll.scrollLeft, simulation.maps.length);
    }

    function hover(cell) {
      if (JSON.stringify(cell) === JSON.stringify(hovered)) return;
      hovered = cell;
      tell();
      paintSoon();
    }

    function choose(cell) {
      cursor = cell && cursor && cell.index === cursor.index && cell.layer === cursor.layer ? null : cell;
      tell();
      paintSoon();
    }

    function onKey(event) {
      if (event.altKey || event.ctrlKey || event.metaKey || simulation.maps.length === 0) return;
      const last = { index: simulation.maps.length - 1, layer: state.run.target.num_layers };
      const from = cursor || { index: Math.min(last.index, geometry.visible(scroll.scrollLeft, scroll.clientWidth, last.index + 1)[0]), layer: simulation.exits[0] ?? last.layer };
      const moves = {
        ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1], PageUp: [-PAGE, 0], PageDown: [PAGE, 0],
        Home: [-Infinity, 0], End: [Infinity, 0],
      };
      if (event.key === "Escape" && cursor) cursor = null;
      else if (moves[event.key]) {
        const [byTokens, byLayers] = cursor ? moves[event.key] : [0, 0];
        cursor = { index: clamp(from.index + byTokens, 0, last.index), layer: clamp(from.layer + byLayers, 1, last.layer) };
        bringIntoSight();
      } else return;
      event.preventDefault();
      event.stopPropagation();
      hovered = null;
      tell();
      setText(spoken, cursor ? detail.sentence() : "");
      paintSoon();
    }

    function bringIntoSight() {
      const left = geometry.left(cursor.index) - geometry.gutter;
      const room = scroll.clientWidth - geometry.gutter - geometry.column;
      if (left < scroll.scrollLeft) scroll.scrollLeft = left;
      else if (left > scroll.scrollLeft + room) scroll.scrollLeft = left - room;
    }

    function tell() {
      const cell = hovered || cursor;
      detail.draw(cell && cell.index < simulation.maps.length ? cellOf(cell) : null, simulation);
      setData(node, "cell", cell ? `${cell.index}.${cell.layer}` : null);
    }

    function cellOf({ index, layer }) {
      const { rule, maps, exits, confidences } = simulation;
      const map = maps[index];
      const isLookedAt = exitRule.layersLookedAt(rule).includes(layer);
      const confidence = confidences[index][layer - 1] ?? null;
      const isReadable = map.ids[layer - 1] !== null && map.ids[layer - 1] !== undefined;
      return {
        index, layer, token: state.tokens[index], numLayers: rule.numLayers, exit: exits[index],
        says: isReadable ? { id: map.ids[layer - 1], text: map.texts[layer - 1] } : null,
        isSame: map.ids[layer - 1] === map.ids[rule.numLayers - 1],
        readings: Object.fromEntries(Object.keys(exitRule.MEASURES).map((name) => [name, map.measures[name] ? map.measures[name][layer - 1] ?? null : null])),
        fate: exitWords.fateOf({
          layer, exit: exits[index], numLayers: rule.numLayers, isLookedAt, confidence, canExit: rule.exitLayers.includes(layer),
          threshold: exitRule.thresholdAt(rule, index),
        }),
      };
    }

    return { node, draw };
  }

  // ---- what stands over the map ----

  function createDetail() {
    const where = el("span", { class: "sv-detail-where" });
    const says = el("span", { class: "sv-detail-says" });
    const verdict = el("span", { class: "sv-detail-verdict" });
    const fate = el("p", { class: "sv-detail-fate" });
    const readings = el("dl", { class: "sv-detail-readings" });
    const hint = el("p", { class: "sv-muted" }, "Point at a cell, tap it, or go there with the arrow keys: it tells what that layer would have said.");
    const told = el("div", {}, el("p", { class: "sv-detail-line" }, where, says, verdict), fate, readings);
    const node = el("div", { class: "sv-detail" }, hint, told);
    let shown = null;

    function draw(cell) {
      shown = cell;
      hint.hidden = cell !== null;
      told.hidden = cell === null;
      if (cell === null) return;
      setText(where, `Token ${cell.index + 1}, layer ${cell.layer} of ${cell.numLayers}`);
      says.replaceChildren(...(cell.says ? ["would say ", tokenText(cell.says)] : ["cannot be read out by these exit heads"]));
      const isLast = cell.layer === cell.numLayers;
      setText(verdict, cell.says === null || isLast ? "" : cell.isSame ? "✓ as the full model" : "≠ the full model");
      if (cell.says && !cell.isSame) verdict.append(", which says ", tokenText(cell.token));
      setData(verdict, "same", cell.says === null || isLast ? null : cell.isSame ? "1" : "0");
      setText(fate, `${SpecViz.sentence.capitalized(cell.fate.words)} (simulated).`);
      setData(fate, "fate", cell.fate.kind);
      readings.replaceChildren(...readingsOf(cell).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
    }

    const sentence = () =>
      exitWords.cellSentence({ ...shown, measures: readingsOf(shown).map(([name, value]) => `${name} ${value}`).join(", ") });

    return { node, draw, sentence };
  }

  function readingsOf({ readings }) {
    const { shortNumber } = exitWords;
    return [
      ["top-1 probability", shortNumber(readings.top1)],
      ["gap of the top two", shortNumber(readings.gap)],
      ["entropy", readings.entropy === null ? "not readable" : `${shortNumber(readings.entropy)} nats`],
      ["saturation", shortNumber(readings.saturation)],
    ];
  }

  function key() {
    return el(
      "ul",
      { class: "sv-map-key", "aria-label": "What the map shows" },
      el("li", {}, "unsure", el("i", { class: "sv-ramp", "aria-hidden": "true" }), "sure"),
      el("li", {}, el("i", { class: "sv-frame", dataset: { same: "1" }, "aria-hidden": "true" }, "✓"), "leaves here, as the full model"),
      el("li", {}, el("i", { class: "sv-frame", dataset: { same: "0" }, "aria-hidden": "true" }, "≠"), "leaves here with another token"),
      el("li", {}, el("i", { class: "sv-faint", "aria-hidden": "true" }), "not run"),
      el("li", {}, el("b", { "aria-hidden": "true" }, "▸"), "exit layer"),
    );
  }

  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

  return { createView };
})();
