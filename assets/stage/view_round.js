// The round in hand: what the drafter guesses, what the target says in its one pass, the verdicts,
// what is rolled back, and what is kept. One position a column (a row, where the stage is narrow).
SpecViz.roundView = (() => {
  const { el, setData, setText, tokenText } = SpecViz.dom;
  const { STATUSES, ORIGINS, PHASES } = SpecViz.vocabulary;
  const { draftStopNote, asSet } = SpecViz.sentence;
  const { draftOf, countStatus, numRolledBack } = SpecViz.reducer;
  const { formatProbability } = SpecViz.figures;
  const { term, hint } = SpecViz.glossaryTips;
  const { tokenAttributes, dieOf, hasDice, residualCell } = SpecViz.roundTokens;
  const { isAllAccepted, unusedCell, passBand, rollbackMark, markUnderTheLine } = SpecViz.roundPass;

  const ROOMY = 6; // columns; more are set smaller
  const WIDE = 10; // columns; more take the whole width of the stage
  const ROWS = { draft: 2, target: 3, verdict: 4, kept: 5 }; // the first row holds the roll back's label
  const ROW_LABELS = {
    draft: () => [term("drafter", "Drafter"), " guesses"],
    target: () => [term("target", "Target"), " says"],
    verdict: (event) => ["Verdict", event && hasDice(event) ? el("span", { class: "sv-row-aside" }, term("u", "die"), " < ratio?") : null],
    kept: () => ["Kept"],
  };

  function createView() {
    const roundWord = term("round", "Round");
    const roundNumber = el("span");
    const title = el("h2", {}, roundWord, roundNumber);
    const note = el("span", { class: "sv-muted" });
    const phases = phaseList();
    const grid = el("div", { class: "sv-grid" });
    const scroll = el("div", { class: "sv-grid-scroll", tabindex: "0", role: "region", "aria-label": "The round in hand" }, grid);
    const sentence = el("p", { class: "sv-sentence" });
    const node = el("section", { class: "sv-round" }, el("div", { class: "sv-zone-head" }, title, note, phases.node), scroll, sentence);

    let built = null; // the round whose cells stand in the grid
    let inSight = ""; // the place that was scrolled to; a viewer may scroll away from it

    function draw(state, frame) {
      const event = frame.pending ? pendingRound(frame.pending) : frame.round ? frame.round.event : null;
      roundWord.hidden = !event;
      setText(roundNumber, event ? ` ${event.round}` : "Before the first round");
      setText(note, event ? noteOf(event, frame) : "");
      phases.draw(event, frame.progress);
      const key = frame.pending ? null : event;
      if (key === null || key !== built) {
        grid.replaceChildren(...(event ? cellsOf(event, numColumns(state, event)) : emptyCells(state)));
        built = key;
      }
      const columns = numColumns(state, event);
      grid.style.setProperty("--positions", columns);
      setData(grid, "dense", columns > ROOMY ? "1" : null);
      setData(node, "wide", Math.max(columns, usualColumns(state)) > WIDE ? "1" : null);
      reveal(grid, frame.progress);
      keepInSight(event ? positionInPlay(event, frame.progress) : 1, columns);
      setText(sentence, asSet(frame.sentence));
    }

    /** In a grid that is wider than its place. */
    function keepInSight(position, columns) {
      const wanted = [columns, position].join();
      if (wanted === inSight) return;
      inSight = wanted;
      const spare = scroll.scrollWidth - scroll.clientWidth;
      if (columns > ROOMY && spare > 0) scroll.scrollLeft = spare * Math.min(1, Math.max(0, (position - 2) / (columns - 3)));
      else scroll.scrollLeft = 0;
    }

    return { node, draw };
  }

  /** Columns stay where they are from round to round: as many as k + 1; fewer only where nothing is drafted. */
  function numColumns(state, event) {
    const drafted = event ? draftOf(event).length : null;
    const usual = event && drafted === 0 && !event.isPending ? Math.min(usualColumns(state), ROOMY) : usualColumns(state);
    return Math.max(usual, drafted + 1);
  }

  function usualColumns(state) {
    const { num_draft_tokens: k, max_draft_tokens: most } = state.run ? state.run.settings : {};
    const asked = Number.isInteger(k) ? k : k === "auto" ? Math.min(most || 0, Math.max(4, state.mostDrafted)) : 0;
    return 1 + (state.run && state.run.drafter.kind === "none" ? 0 : Math.min(asked, Math.max(4, state.mostDrafted)));
  }

  function pendingRound(pending) {
    return { round: pending.round, draft: pending.tokens.filter(Boolean), extra: null, committed: [], isPending: true };
  }

  function noteOf(event, frame) {
    if (event.isPending || frame.progress.phase === "draft") return "";
    const note = draftStopNote(event);
    return note ? `short draft: ${note}` : "";
  }

  function phaseList() {
    const items = Object.entries(PHASES).map(([name, phase]) => el("li", { dataset: { phase: name } }, term(name, phase.word)));
    const node = el("ol", { class: "sv-phases", "aria-label": "Phases of a round" }, items);
    const order = Object.keys(PHASES);

    function draw(event, progress) {
      const now = progress ? order.indexOf(progress.phase) : -1;
      items.forEach((item, index) => {
        const isAbsent = event && order[index] === "rollback" && numRolledBack(event) === 0;
        setData(item, "state", index === now ? "now" : index < now ? (isAbsent ? "absent" : "over") : isAbsent ? "absent" : null);
        if (index === now) item.setAttribute("aria-current", "step");
        else item.removeAttribute("aria-current");
      });
    }

    return { node, draw };
  }

  // ---- cells: all of a round's are made at once, and shown beat by beat ----

  /** A token in a cell: a long one is set smaller rather than broken (the style sheet divides by `--chars`). */
  function cellToken(token) {
    const node = tokenText(token);
    const width = [...node.textContent].reduce((sum, char) => sum + (char < "\u1100" ? 1 : 1.8), token.special ? 2.5 : 0);
    node.style.setProperty("--chars", Math.max(1, width));
    return node;
  }

  function place(row, position) {
    return { "--row": ROWS[row], "--position": position };
  }

  function rowLabels(event) {
    return Object.entries(ROW_LABELS).map(([row, label]) => el("span", { class: "sv-row-label", style: { "--row": ROWS[row] } }, label(event)));
  }

  function emptyCells(state) {
    const columns = numColumns(state, null);
    return [...rowLabels(null), passBand(null), ...Array.from({ length: columns - 1 }, (_, i) => emptyCell(i + 1))];
  }

  function emptyCell(position) {
    return el("span", { class: "sv-cell sv-empty", "aria-hidden": "true", style: place("draft", position) });
  }

  function cellsOf(event, columns) {
    const draft = draftOf(event);
    const cells = [...rowLabels(event), passBand(event), rollbackMark(event)];
    draft.forEach((token, index) => cells.push(...positionCells(token, index + 1, event)));
    for (let position = draft.length + 1; position < columns && draft.length > 0; position += 1) cells.push(emptyCell(position));
    if (event.extra) cells.push(...extraCells(event, draft.length));
    if (!event.isPending && draft.length > 0 && !isAllAccepted(event)) cells.push(unusedCell(event, place));
    cells.push(residualCell(event, columns, place));
    markUnderTheLine(cells, event);
    if (draft.length === 0) cells.push(el("span", { class: "sv-cell sv-nothing-drafted", dataset: { beat: "draft", at: 0 } }, "nothing drafted"));
    return cells.filter(Boolean);
  }

  const isJudged = (token) => token.status === "accepted" || token.status === "rejected";

  function positionCells(token, position, event) {
    const cells = [draftCell(token, position, event)];
    if (event.isPending) return cells;
    const same = draftOf(event).filter((other) => other.status === token.status);
    const isFirst = same[0] === token;
    cells.push(targetCell(token, position, event));
    if (isJudged(token)) cells.push(verdictCell(token, position, isFirst));
    else if (isFirst) cells.push(verdictCell(token, position, isFirst, same.length));
    if (token.status === "accepted") cells.push(keptCell(token, position, "accepted", tokenAttributes(event, position - 1)));
    return cells;
  }

  function draftCell(token, position, event) {
    const { token: key, ...more } = tokenAttributes(event, position - 1, { isButton: true });
    return el(
      "span",
      { class: "sv-cell sv-draft", dataset: { beat: "draft", at: position, status: token.status, token: key }, style: place("draft", position), ...more },
      cellToken(token),
      token.looked_up ? el("span", { class: "sv-aside" }, "looked up") : probability(token.draft_prob, "drafter"),
    );
  }

  function targetCell(token, position, event) {
    const favourite = (token.target_top || [])[0];
    const own = favourite ? { id: favourite[0], text: favourite[1] } : null;
    const isSame = own !== null && own.id === token.id;
    const content = !isJudged(token)
      ? [el("span", { class: "sv-void" }, "not judged")]
      : own
        ? [cellToken(isSame ? token : own), probability(favourite[2], "target")]
        : [probability(token.target_prob, "target")];
    if (isJudged(token) && own && !isSame) content.push(el("span", { class: "sv-aside" }, "draft: ", formatProbability(token.target_prob)));
    return el(
      "span",
      { class: "sv-cell sv-target", dataset: { beat: isJudged(token) ? "verify" : "rollback", judged: isJudged(token) ? "1" : null, ...tokenAttributes(event, position - 1) }, style: place("target", position) },
      content,
    );
  }

  /** `isFirst`: of its kind in this round; one of each kind is a tab stop. `size`: how many tokens it is about. */
  function verdictCell(token, position, isFirst, size = 1) {
    const status = STATUSES[token.status];
    if (!status) return null;
    const beat = token.status === "discarded" || token.status === "cut" ? "rollback" : "judge";
    return el(
      "span",
      { class: "sv-cell sv-verdict", dataset: { beat, at: position, status: token.status, run: size > 1 ? "1" : null }, style: { ...place("verdict", position), "--size": size } },
      el("i", { class: "sv-glyph", "aria-hidden": "true" }, status.glyph),
      el("span", { class: "sv-word" }, (isFirst ? term : hint)(token.status, status.word)),
      dieOf(token),
    );
  }

  function keptCell(token, position, origin, { token: key, ...more }) {
    const words = ORIGINS[origin] || ORIGINS.unknown;
    const beat = origin === "accepted" ? "judge" : "land";
    return el(
      "span",
      { class: "sv-cell sv-kept", dataset: { beat, at: position, origin, token: key }, style: place("kept", position), ...more },
      cellToken(token),
      origin === "accepted" ? null : el("span", { class: "sv-word" }, el("i", { "aria-hidden": "true" }, words.glyph), ` ${words.word}`),
    );
  }

  /** The extra token lands after the accepted ones; a bonus or plain one has a target cell of its own. */
  function extraCells(event, numDrafted) {
    const position = countStatus(event, "accepted") + 1;
    const cells = [keptCell(event.extra, position, event.extra.kind, tokenAttributes(event, "extra", { isButton: true }))];
    if (position > numDrafted) {
      const favourite = (event.extra.target_top || [])[0];
      const own = favourite ? { id: favourite[0], text: favourite[1] } : null;
      const isSame = !own || own.id === event.extra.id;
      cells.push(
        el(
          "span",
          { class: "sv-cell sv-target", dataset: { beat: "verify", judged: "1", ...tokenAttributes(event, "extra") }, style: place("target", position) },
          cellToken(isSame ? event.extra : own),
          probability(isSame ? event.extra.target_prob : favourite[2], "target"),
        ),
      );
    }
    return cells;
  }

  function probability(value, whose) {
    if (value === null || value === undefined) return null;
    return el(
      "span",
      { class: "sv-probability", dataset: { whose }, style: { "--p": Math.max(0, Math.min(1, value)) } },
      el("i", { class: "sv-bar", "aria-hidden": "true" }),
      el("span", {}, formatProbability(value)),
    );
  }

  /** Where the eye should be: what was drafted or judged last, then the token that the target adds. */
  function positionInPlay(event, progress) {
    if (progress.phase === "draft") return Math.max(1, progress.drafted);
    if (progress.phase === "verify") return 1;
    if (progress.phase === "judge") return progress.judged;
    return countStatus(event, "accepted") + 1;
  }

  /** Shows what has happened by now. */
  function reveal(grid, progress) {
    for (const cell of grid.children) {
      const beat = cell.dataset.beat;
      if (beat) setData(cell, "shown", progress && hasHappened(beat, Number(cell.dataset.at), progress) ? "1" : null);
    }
    setData(grid, "rolledBack", progress && progress.rolledBack ? "1" : null);
    setData(grid, "phase", progress ? progress.phase : null);
  }

  function hasHappened(beat, at, progress) {
    if (beat === "draft") return progress.drafted >= at;
    if (beat === "verify") return progress.verified;
    if (beat === "judge") return progress.judged >= at;
    if (beat === "rollback") return progress.rolledBack;
    return progress.landed;
  }

  return { createView };
})();
