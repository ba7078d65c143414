// The newest timed run: where its tokens left, what that saved, whether the text is still the full model's. All measured.
SpecViz.timedView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { exitBench, exitWords, exitText } = SpecViz;
  const { comparedSpeedOf, figuresOf, formatSeconds, ratio, verdictOf } = SpecViz.figures;
  const { quoted, counted } = SpecViz.sentence;
  const { term } = SpecViz.glossaryTips;
  const FEWEST_TOKENS = 8; // a speed over fewer is chance

  const TILES = [
    { name: "mean_layers_per_token", label: "layers / token", read: layersTile },
    { name: "agreement", label: "same token as the full model", read: agreementTile },
    { name: "tokens_per_second", label: "tokens / second", read: speedTile },
    { name: "time_saved", label: "time saved", read: savedTile },
  ];

  function createView() {
    const which = el("span", { class: "sv-muted" });
    const tiles = TILES.map(createTile);
    const heads = el("p", { class: "sv-muted sv-head-time" });
    const histogram = createHistogram();
    const departs = el("p", { class: "sv-departs" });
    const full = exitText.createText("The full model's text");
    const own = exitText.createText("The text of the timed run");
    const nothing = el("p", { class: "sv-muted" });
    const told = el(
      "div",
      { class: "sv-timed-body" },
      el("div", { class: "sv-timed-figures" }, el("dl", { class: "sv-tiles" }, tiles.map((tile) => tile.node)), heads, histogram.node),
      el(
        "div",
        { class: "sv-timed-texts" },
        departs,
        el("h3", {}, "Timed run ", el("span", { class: "sv-muted" }, "the small number: the layer after which a token left")),
        own.node,
        el("h3", {}, "Full model ", el("span", { class: "sv-muted" }, "the map run's text")),
        full.node,
      ),
    );
    const node = el(
      "section",
      { class: "sv-timed" },
      el("div", { class: "sv-zone-head" }, el("h2", {}, term("exit_timed", "Timed run")), el("span", { class: "sv-tag", dataset: { kind: "measured" } }, "measured"), el("span", { class: "sv-tag" }, "exits are real: later layers are not run"), which),
      nothing,
      told,
    );

    /** @param part: the run, or null; @param map: the state of the map run; @param canRun: there is somebody to run it */
    function draw(part, map, { canRun }) {
      const timed = part ? part.state : null;
      const isThere = Boolean(timed && timed.run && exitBench.exitInfoOf(timed));
      nothing.hidden = isThere;
      setText(nothing, canRun ? "No timed run yet: it follows the map run, or press “Run it for real”." : "No timed run is among these runs.");
      told.hidden = !isThere;
      setData(node, "run", isThere ? timed.run.run_id : null);
      setData(node, "tokens", isThere ? timed.tokens.length : null);
      setText(which, isThere ? `${settingsWords(timed)} · ${part.kind === "live" ? "live" : "recorded"}` : "");
      if (!isThere) return;
      const numLayers = exitBench.numLayersOf(timed);
      const layers = exitBench.exitLayersOf(timed);
      const fullTokens = map ? map.tokens : [];
      const seen = { timed, layers, numLayers, fullTokens };
      tiles.forEach((tile) => tile.draw(seen));
      setText(heads, headWords(timed));
      histogram.draw(layers, exitBench.exitInfoOf(timed).exit_layers, numLayers);
      setText(departs, departureWords(timed, fullTokens));
      const isSampled = timed.run.settings.temperature > 0;
      setData(departs, "departs", isSampled || departureOf(timed, fullTokens) === null ? "0" : "1");
      own.draw(timed.tokens, { full: isSampled ? null : fullTokens, isFullOver: Boolean(map && map.finished), layers, numLayers });
      full.draw(fullTokens);
    }

    return { node, draw };
  }

  function settingsWords({ run }) {
    const { min_layer: minLayer, heads } = run.early_exit;
    const least = minLayer ? `, from layer ${minLayer}` : "";
    return `${exitWords.ruleWords(run.early_exit)}${least} · ${heads.kind === "plain" ? "plain heads" : "trained translators"}`;
  }

  // ---- the tiles ----

  function createTile({ name, label, read }) {
    const value = el("dd", { class: "sv-value", dataset: { figure: name } });
    const of = el("dd", { class: "sv-of" });
    const node = el("div", { class: "sv-tile" }, el("dt", {}, label), value, of);
    return {
      node,
      draw(seen) {
        const tile = read(seen);
        setText(value, tile.value);
        setText(of, tile.of);
        setData(value, "answer", tile.answer ?? null);
      },
    };
  }

  function layersTile({ layers, numLayers }) {
    const run = layers.reduce((sum, layer) => sum + layer, 0);
    const mean = ratio(run, layers.length);
    return { value: exitWords.layersText(mean), of: mean === null ? "no token yet" : `${run} / ${layers.length}; of ${numLayers}: ${exitWords.percent(1 - mean / numLayers)} saved` };
  }

  function agreementTile({ timed, fullTokens }) {
    const compared = Math.min(timed.tokens.length, fullTokens.length);
    if (timed.run.settings.temperature > 0) return { value: "–", of: "sampled: not comparable" };
    if (compared === 0) return { value: "–", of: timed.finished ? "there is no full-depth map beside it" : "nothing to compare yet" };
    const same = exitBench.numSameOf(timed.tokens, fullTokens);
    return { value: exitWords.percent(same / compared), of: `${same} / ${compared}, place by place`, answer: same === compared ? "true" : null };
  }

  /** Decoding only, as everywhere. */
  const speedOf = (state) => (state.rounds.length === 0 ? null : figuresOf(state.rounds.at(-1).totals).tokensPerSecond);
  const plainSpeedOf = (state) => (state.identity ? state.identity.plain_tokens_per_second ?? null : null);

  function speedTile({ timed }) {
    const speed = speedOf(timed);
    if (speed === null) return { value: "–", of: "no token yet" };
    const { totals } = timed.rounds.at(-1);
    return { value: speed.toFixed(1), of: `${totals.committed} / ${formatSeconds(figuresOf(totals).seconds)}` };
  }

  function savedTile({ timed }) {
    const [own, plain] = [comparedSpeedOf(timed), plainSpeedOf(timed)];
    if (own === null || plain === null) return { value: "–", of: whyNoPlainSpeed(timed) };
    if (timed.tokens.length < FEWEST_TOKENS) return { value: "–", of: `${timed.tokens.length} tokens are too few` };
    const percent = Math.round(100 * (1 - plain / own));
    const verdict = verdictOf(own / plain);
    return {
      value: `${percent < 0 ? "−" : ""}${Math.abs(percent)}%`,
      of: `${verdict === "faster" ? "" : `${verdict}; `}a token: ${formatSeconds(1 / own)} against ${formatSeconds(1 / plain)} plain, measured once`,
      answer: verdict === "slower" ? "false" : null,
    };
  }

  function whyNoPlainSpeed({ finished, failed, identity, run }) {
    if (failed || identity || (finished && !run.check)) return "plain decoding was not timed";
    return finished ? "plain decoding is being timed" : "measured when the run is over";
  }

  /** The heads' own time is part of every figure here. */
  function headWords(state) {
    const seconds = state.rounds.map(({ event }) => (event.exit ? event.exit.head_seconds : null)).filter((value) => typeof value === "number");
    if (seconds.length === 0) return "";
    const inHeads = seconds.reduce((sum, value) => sum + value, 0);
    const all = figuresOf(state.rounds.at(-1).totals).seconds;
    return `Of this, ${formatSeconds(inHeads)} (${exitWords.percent(ratio(inHeads, all))}) went into asking the exit heads: it is in the figures above.`;
  }

  // ---- where the text departs ----

  /** While it runs it is compared with the map run; what its own check against plain decoding says holds at last. */
  function departureOf(timed, fullTokens) {
    const { identity } = timed;
    if (identity && identity.identical === true) return null;
    if (identity && identity.first_difference) return identity.first_difference.position;
    return exitBench.firstDifference(timed.tokens, fullTokens.slice(0, timed.finished ? undefined : timed.tokens.length));
  }

  function departureWords(timed, fullTokens) {
    const { identity } = timed;
    const at = departureOf(timed, fullTokens);
    if (timed.run.settings.temperature > 0) return "Sampled: not comparable with the full model, and its distribution is not the full model’s.";
    if (identity && identity.identical === null) return `Not comparable with plain decoding: ${identity.why}.`;
    if (at === null && identity) return "Identical to plain decoding: yes, checked in this run.";
    if (at === null) return timed.tokens.length === 0 ? "" : `Same as the full model so far: ${counted(timed.tokens.length, "token")}.`;
    const [full, own] = [fullTokens[at], timed.tokens[at]];
    const said = own ? `says ${quoted(own)}` : "has ended";
    const wanted = full ? `says ${quoted(full)}` : "has ended";
    return `Departs at token ${at + 1}: this run ${said}, the full model ${wanted}. From there on the two continue different texts.`;
  }

  // ---- the histogram ----

  function createHistogram() {
    const rows = el("ol", { class: "sv-histogram-rows" });
    const node = el("figure", { class: "sv-histogram" }, el("figcaption", {}, el("h3", {}, "Tokens by the layer after which they left")), rows);
    let built = "";
    let bars = [];

    function build(layers, numLayers) {
      bars = layers.map((layer) => {
        const count = el("span", { class: "sv-histogram-count" });
        const bar = el("i", { "aria-hidden": "true" });
        const isLast = layer === numLayers;
        const row = el("li", { dataset: { layer, last: isLast ? "1" : null } }, el("span", { class: "sv-histogram-layer" }, isLast ? `all ${layer}` : String(layer)), el("span", { class: "sv-histogram-bar" }, bar), count);
        return { layer, row, bar, count };
      });
      rows.replaceChildren(...bars.map(({ row }) => row));
    }

    function draw(exits, exitLayers, numLayers) {
      const layers = [...new Set([...exitLayers, numLayers, ...exits])].sort((a, b) => b - a);
      if (built !== layers.join()) build(layers, numLayers);
      built = layers.join();
      const counts = new Map();
      for (const layer of exits) counts.set(layer, (counts.get(layer) || 0) + 1);
      const most = Math.max(1, ...counts.values());
      for (const { layer, row, bar, count } of bars) {
        const number = counts.get(layer) || 0;
        bar.style.setProperty("--share", number / most);
        setText(count, exits.length === 0 ? "" : `${number} of ${exits.length}`);
        setData(row, "count", number);
      }
    }

    return { node, draw };
  }

  return { createView, speedOf, plainSpeedOf, FEWEST_TOKENS };
})();
