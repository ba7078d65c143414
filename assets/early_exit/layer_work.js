// How much of the target a run has run, layer by layer: derived from its events.
//
// `passes` counts a layer once for each time it is run, over however many positions: on a small batch this is what
// takes the time. `positions` counts it once for each position: the arithmetic.
SpecViz.layerWork = (() => {
  const { draftOf } = SpecViz.reducer;

  /** {passes, positions, committed, passesPerToken, positionsPerToken} of a run so far. */
  function workOf(state) {
    const numLayers = state.run.target.num_layers;
    const shared = sharedLayersOf(state.run.drafter);
    const total = { passes: 0, positions: 0, committed: 0 };
    for (const { event } of state.rounds) {
      const [passes, positions] = event.exit ? [event.exit.layer, event.exit.layer] : roundWork(event, numLayers, shared);
      total.passes += passes;
      total.positions += positions;
      total.committed += (event.committed || []).length;
    }
    const each = (work) => SpecViz.figures.ratio(work, total.committed);
    return { ...total, passesPerToken: each(total.passes), positionsPerToken: each(total.positions) };
  }

  /** Layers of the target in which its drafter drafts, and whether verification goes on from there (older traces did not). */
  function sharedLayersOf(drafter) {
    if (drafter.kind !== "early_exit") return { layers: 0, isReused: false };
    return { layers: drafter.exit_layer || 0, isReused: Boolean(drafter.exit_heads) };
  }

  /**
   * One round that verifies n drafts feeds n + 1 positions. Drafting n tokens in the first E layers runs these n times;
   * where verification goes on from what they left, only the last draft still has to go through them.
   */
  function roundWork(event, numLayers, { layers, isReused }) {
    const fed = draftOf(event).length + 1;
    const drafting = draftOf(event).length * layers;
    if (!isReused || drafting === 0) return [numLayers + drafting, fed * numLayers + drafting];
    return [numLayers + drafting, fed * numLayers];
  }

  return { workOf };
})();
