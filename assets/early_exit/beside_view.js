// Side by side on one prompt: plain decoding, early exit, and the two ways to speculate. They were run one after the other;
// each row's clock counts its own run, and one clock can be let run over all of them.
SpecViz.besideView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { exitBench, exitText, exitWords, layerWork, race } = SpecViz;
  const { WAYS } = exitWords;
  const { formatSeconds, formatBytes } = SpecViz.figures;
  const { DRAFTERS } = SpecViz.vocabulary;
  const { quotedText } = SpecViz.sentence;
  const { term } = SpecViz.glossaryTips;
  const COLUMNS = [
    ["tokens / s", "measured"], ["against plain", "measured"], ["layers run / token", "derived: passes through a layer"],
    ["layers × positions / token", "derived: the arithmetic"], ["KV at the end", "derived: positions × bytes"], ["text", "compared with the plain row"],
  ];

  /** @param onRun(): run all rows; @param onLayer(layer): another layer for self-speculation */
  function createView({ onRun, onLayer }) {
    const layer = el("select", { class: "sv-select", "aria-label": "Layer for self-speculation", onChange: () => onLayer(Number(layer.value)) });
    const run = el("button", { class: "sv-do", type: "button", dataset: { run: "beside" }, title: "On the prompt and settings of the runs shown here", onClick: onRun }, "Run all four");
    const again = el("button", { class: "sv-do sv-quiet", type: "button", onClick: play }, "▶ Race on one clock");
    const clock = el("span", { class: "sv-clock" });
    const rows = el("div", { class: "sv-rows" });
    const table = createTable();
    const nothing = el("p", { class: "sv-muted" }, "Not run yet on this prompt.");
    const here = el("p", { class: "sv-contrast-here" });
    const about = el("span", { class: "sv-muted" });
    const layerLabel = el("label", { class: "sv-select-label" }, "self-speculation from layer ", layer);
    const node = el(
      "section",
      { class: "sv-beside" },
      el("div", { class: "sv-zone-head" }, el("h2", {}, "Side by side"), about, el("div", { class: "sv-beside-doors" }, layerLabel, run, again, clock)),
      contrast(here),
      nothing,
      rows,
      table.node,
    );
    const theRace = race.createRace({ onTick: (seconds) => drawAt(seconds) });
    let parts = [];
    let shown = [];

    function play() {
      theRace.start(Math.max(...parts.map((part) => race.clockOf(part.state).at(-1) || 0)));
    }

    /**
     * @param newParts the rows' runs so far; @param layers exit layers to choose from; @param chosen of these
     */
    function draw(newParts, { layers, chosenLayer, isBusy, canRun }) {
      if (newParts.length !== parts.length || newParts.some((part, index) => part !== parts[index])) {
        theRace.stop();
        parts = [...newParts];
        shown = parts.map((part) => createRow(part.role));
        rows.replaceChildren(...shown.map((row) => row.node));
      }
      const kind = parts.length === 0 ? "" : parts[0].kind === "live" ? " · live" : " · recorded";
      setText(about, `one prompt; run one after the other, each measured once on its own clock${kind}`);
      nothing.hidden = parts.length > 0;
      table.node.hidden = parts.length === 0;
      fillLayers(layers, chosenLayer);
      run.hidden = layerLabel.hidden = !canRun;
      run.disabled = isBusy || layers.length === 0;
      again.hidden = parts.length < 2 || !parts.every((part) => part.state.finished);
      setData(node, "rows", parts.length);
      table.draw(parts);
      setText(here, hereWords(parts));
      if (!theRace.isRunning) drawAt(null);
    }

    function fillLayers(layers, chosenLayer) {
      const wanted = layers.join();
      if (layer.dataset.layers !== wanted) {
        layer.dataset.layers = wanted;
        layer.replaceChildren(...layers.map((one) => el("option", { value: one }, one)));
      }
      if (chosenLayer !== null) layer.value = String(chosenLayer);
    }

    function drawAt(seconds) {
      const plain = parts.find((part) => part.role === "plain");
      const clocks = parts.map((part) => race.clockOf(part.state));
      const reach = parts.map((part, index) => reachOf(part.state, clocks[index], seconds));
      const furthest = Math.max(1e-9, ...(seconds === null ? reach : parts.map((part) => part.state.tokens.length)));
      parts.forEach((part, index) => shown[index].draw(part.state, clocks[index], reach[index] / furthest, seconds, plain ? plain.state : null));
      setText(clock, seconds === null ? "" : formatSeconds(seconds));
      setData(node, "racing", seconds === null ? null : "1");
    }

    return { node, draw };
  }

  /** How far a row's bar reaches: while the clock runs, tokens written; at rest, tokens a second. */
  function reachOf(state, clock, seconds) {
    if (seconds !== null) return race.tokensAt(state, clock, Math.min(seconds, clock.at(-1) || 0));
    return SpecViz.timedView.speedOf(state) || 0;
  }

  // ---- a row ----

  function createRow(role) {
    const way = WAYS[role] || { name: role, kind: "" };
    const how = el("span", { class: "sv-muted" });
    const time = el("span", { class: "sv-row-time" });
    const bar = el("i", { "aria-hidden": "true" });
    const text = exitText.createText(`${way.name}: the text`);
    const fault = el("p", { class: "sv-row-fault" });
    const node = el(
      "article",
      { class: "sv-way", dataset: { role }, "aria-label": way.name },
      el("header", {}, el("h3", {}, way.name), el("span", { class: "sv-tag", dataset: { verified: way.isVerified === null ? null : way.isVerified ? "1" : "0" } }, way.kind), how, time),
      el("div", { class: "sv-track" }, bar),
      text.node,
      fault,
    );

    function draw(state, clock, share, seconds, plain) {
      const total = clock.at(-1) || 0;
      const now = seconds === null ? total : Math.min(seconds, total);
      const count = seconds === null ? state.tokens.length : race.tokensAt(state, clock, seconds);
      setText(how, howWords(state));
      setText(time, state.run ? `${count} tokens in ${formatSeconds(now)}` : "waiting");
      bar.style.setProperty("--share", share);
      setData(node, "over", state.finished && now >= total ? "1" : null);
      setText(fault, state.failed ? state.failed.error : "");
      const isExit = exitBench.exitInfoOf(state) !== null;
      text.draw(state.tokens, {
        count, full: plain && plain !== state ? plain.tokens : null, isFullOver: Boolean(plain && plain.finished), numLayers: state.run ? exitBench.numLayersOf(state) : 0,
        layers: isExit ? exitBench.exitLayersOf(state) : null,
      });
    }

    return { node, draw };
  }

  function howWords({ run }) {
    if (!run) return "";
    if (run.early_exit) return `at ${exitWords.thresholdText(run.early_exit.threshold ?? null)}`;
    const { kind, exit_layer: exitLayer } = run.drafter;
    if (kind === "none") return "";
    const k = run.settings.num_draft_tokens;
    return kind === "early_exit" ? `first ${exitLayer} layers draft, k = ${k}` : `${DRAFTERS[kind] || kind}, k = ${k}`;
  }

  // ---- the table ----

  function createTable() {
    const body = el("tbody");
    const heads = COLUMNS.map(([name, source]) => el("th", { scope: "col" }, name, el("small", {}, source)));
    const table = el("table", { class: "sv-ways" }, el("caption", { class: "sv-hidden" }, "The four ways compared"), el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Way"), heads)), body);
    const node = el("div", { class: "sv-table-scroll", tabindex: "0", role: "region", "aria-label": "Table of the four ways" }, table);
    let built = "";

    function draw(parts) {
      const plain = parts.find((part) => part.role === "plain");
      const contents = parts.filter((part) => part.state.run).map((part) => cellsOf(part, plain ? plain.state : null));
      const wanted = JSON.stringify(contents);
      if (wanted === built) return;
      built = wanted;
      body.replaceChildren(...contents.map((cells) => el("tr", { dataset: { role: cells[0].role } }, cells.map((cell, index) => el(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, dataset: { answer: cell.answer ?? null } }, cell.text, cell.of ? el("small", {}, cell.of) : null)))));
    }

    return { node, draw };
  }

  function cellsOf({ role, state }, plain) {
    const speed = SpecViz.timedView.speedOf(state);
    const work = layerWork.workOf(state);
    const text = textCell(state, plain);
    const each = (value) => (value === null ? "–" : value.toFixed(1));
    return [
      { role, text: (WAYS[role] || { name: role }).name, of: howWords(state) },
      { text: speed === null ? "–" : speed.toFixed(1), of: speed === null ? "" : `${work.committed} / ${formatSeconds(race.clockOf(state).at(-1))}` },
      againstPlain(speed, state, plain, text.answer === "true"),
      { text: each(work.passesPerToken), of: work.committed > 0 ? `${work.passes} / ${work.committed}` : "" },
      { text: each(work.positionsPerToken), of: work.committed > 0 ? `${work.positions} / ${work.committed}` : "" },
      cacheCell(state),
      text,
    ];
  }

  /** Faster with another text is no gain that could be marked as one. */
  function againstPlain(speed, state, plain, isSameText) {
    const other = plain ? SpecViz.timedView.speedOf(plain) : null;
    if (state === plain) return { text: "1" };
    if (speed === null || other === null) return { text: "–" };
    if (wasStopped(state)) return { text: "–", of: "stopped" };
    const factor = speed / other;
    const verdict = SpecViz.figures.verdictOf(factor);
    return { text: `${factor.toFixed(2)}×`, of: verdict, answer: { slower: "false", faster: isSameText ? "true" : null }[verdict] ?? null };
  }

  function cacheCell(state) {
    const cache = state.rounds.length > 0 ? state.rounds.at(-1).event.cache || {} : {};
    const bytes = ["target", "draft"].map((who) => (cache[who] ? cache[who].bytes : null)).filter((value) => typeof value === "number");
    if (bytes.length === 0) return { text: "–" };
    return { text: formatBytes(bytes.reduce((sum, value) => sum + value, 0)), of: bytes.length > 1 && bytes[1] > 0 ? `${formatBytes(bytes[0])} + ${formatBytes(bytes[1])} for the draft` : "" };
  }

  function textCell(state, plain) {
    if (state === plain || plain === null) return { text: "the reference" };
    if (state.failed) return { text: "broke off" };
    if (wasStopped(state)) return { text: "stopped", of: `after ${state.tokens.length} tokens` };
    if (!state.finished || !plain.finished) return { text: "running" };
    if (state.run.settings.temperature > 0) return { text: "sampled: not comparable", of: state.run.early_exit ? "and its distribution is not the target's" : "but its distribution is the target's" };
    const at = exitBench.firstDifference(state.tokens, plain.tokens) ?? (plain.tokens.length > state.tokens.length ? state.tokens.length : null);
    if (at === null) return { text: "✓ identical", of: `all ${state.tokens.length} tokens`, answer: "true" };
    const said = state.tokens[at] ? quotedText(state.tokens[at].text || "") : "an end";
    return { text: `≠ from token ${at + 1}`, of: `${said} instead of ${plain.tokens[at] ? quotedText(plain.tokens[at].text || "") : "an end"}`, answer: "false" };
  }

  const wasStopped = (state) => Boolean(state.finished && state.finished.reason === "cancelled");

  // ---- the two ideas ----

  function contrast(here) {
    return el(
      "div",
      { class: "sv-contrast" },
      el("div", { dataset: { idea: "depth" } }, el("h3", {}, term("early_exit_decoding", "Early exit"), ": less depth for one token"), el("p", {}, "A token that is easy leaves at the first layer that is sure enough. Nobody checks it. What the skipped layers would have said is never known, so the text may change, and what changes once stays changed.")),
      el("div", { dataset: { idea: "breadth" } }, el("h3", {}, term("draft", "Speculation"), ": more breadth in one pass"), el("p", {}, "Something cheap guesses several tokens, and all layers judge them together in one pass. Every token is checked, so the text cannot change; a wrong guess costs time only.")),
      here,
    );
  }

  /** What the two ideas came to here. */
  function hereWords(parts) {
    const of = (role) => parts.find((part) => part.role === role && part.state.finished);
    const [plain, exit, drafted] = [of("plain"), of("early_exit"), of("drafted") || of("self_speculation")];
    if (!plain || !exit || !drafted) return "";
    const [a, b] = [layerWork.workOf(exit.state), layerWork.workOf(drafted.state)];
    const same = exitBench.firstDifference(exit.state.tokens, plain.state.tokens);
    const kept = plain.state.run.settings.temperature > 0 ? "" : same === null ? ", and its text stayed the same this time" : `, and its text departs at token ${same + 1}`;
    return (
      `Here: early exit ran ${a.passesPerToken.toFixed(1)} of ${exitBench.numLayersOf(plain.state)} layers for a token${kept}. ` +
      `${WAYS[drafted.role].name} made ${b.passesPerToken.toFixed(1)} passes through a layer for a token, as one pass serves several tokens; each pass computes all its positions, rejected ones too, which makes ${b.positionsPerToken.toFixed(1)} layers × positions for a token.`
    );
  }

  return { createView };
})();
