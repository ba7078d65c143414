// The line on top: what is shown here, a recording or a live run, of which model, and how it stands.
SpecViz.sourceView = (() => {
  const { el, setData, setText } = SpecViz.dom;
  const { DRAFTERS, REFUSALS, PAUSED, WHY_IT_ENDED } = SpecViz.vocabulary;
  const { isCutOff } = SpecViz.reducer;
  const { term } = SpecViz.glossaryTips;

  function createView() {
    const badge = el("span", { class: "sv-badge" });
    const title = el("span", { class: "sv-source-title" });
    const details = el("span", { class: "sv-source-details" });
    const lead = el("b", { class: "sv-refused" });
    const words = el("span");
    const aside = el("span", { class: "sv-muted sv-still-shown" });
    const status = el("p", { class: "sv-status", role: "status" }, lead, " ", words, " ", aside);
    const node = el("header", { class: "sv-source" }, el("p", { class: "sv-source-line" }, badge, title, details), status);

    let described = null; // the run whose details stand there

    /**
     * `source`: {kind, phase: "recording" | "waiting" | "running" | "done" | "error", note, refused}; `refused` says
     * what was asked for, where the note is about that and not about the run on show.
     */
    function draw(state, source) {
      const isLive = source.kind === "live";
      setText(badge, isLive ? "Live run" : "Recording");
      setData(badge, "kind", source.kind);
      setText(title, state.run ? state.run.target.name : "");
      if (state.run !== described) details.replaceChildren(...(state.run ? describe(state.run, isLive) : []));
      described = state.run;
      const refused = source.phase === "error" ? REFUSALS[source.refused] : undefined;
      lead.hidden = !refused;
      setText(lead, refused ? refused.word : "");
      setText(words, statusText(state, source));
      aside.hidden = !refused || !refused.isPaused || !state.run;
      setText(aside, aside.hidden ? "" : PAUSED[source.kind]);
      setData(status, "phase", source.phase === "done" && isCutOff(state) ? "cutOff" : source.phase);
      setData(status, "refused", refused ? source.refused : null);
    }

    return { node, draw };
  }

  function describe(run, isLive) {
    const { settings, target, drafter, early_exit: exits } = run;
    const k = settings.num_draft_tokens;
    const drafts = drafter.kind === "none" ? DRAFTERS.none : term(drafter.kind, DRAFTERS[drafter.kind] || drafter.kind);
    const looks = drafter.lookup_first ? [", ", term("lookup_first", "lookup first")] : [];
    const asked = drafter.kind === "none" ? "" : [", ", term("k", "k"), ` = ${k}`];
    const temperature = settings.temperature > 0 ? `temperature ${settings.temperature}` : term("greedy", "greedy");
    const recorded = !isLive && run.created ? ` · recorded on ${run.created.slice(0, 10)}` : "";
    const how = exits ? exitWords(exits) : [drafts, ...looks, ...asked];
    return [...how, " · ", temperature, ` · ${shortDtype(target.dtype)} on ${target.device}${recorded}`];
  }

  /** How tokens may leave early; a map run is the full model. */
  function exitWords({ run, measure, threshold }) {
    const asked = typeof threshold === "number" ? `${measure} ≥ ${threshold}` : "never";
    const kind = run === "map" ? "map: every layer is run and read out" : `unverified, ${asked}`;
    return [term("early_exit_decoding", "early exit"), ` (${kind})`];
  }

  const CUT_OFF = {
    live: "This run broke off: no more of it will come.",
    recording: "This trace is incomplete: it ends before the run did.",
  };

  const shortDtype = (dtype) => String(dtype).replace("torch.", "");

  function statusText(state, source) {
    if (source.note) return source.note;
    if (state.failed) return state.failed.error;
    if (source.phase === "done" && isCutOff(state)) return CUT_OFF[source.kind];
    if (source.kind === "recording") return "";
    if (source.phase === "running") return state.finished ? "Comparing with plain decoding" : "Generating";
    return state.finished ? `Over: ${WHY_IT_ENDED[state.finished.reason] || state.finished.reason}` : "";
  }

  return { createView };
})();
