"""The map of a run: plain decoding, with every layer read out by its exit head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specviz.early_exit import confidence
from specviz.early_exit.exit_decoding import ExitDecodingRun
from specviz.early_exit.surety import rounded
from specviz.early_exit.token_look import TokenLook
from specviz.engine.layerwise import LayerStates, Onward
from specviz.engine.logits import argmax_rows


class MapRun(ExitDecodingRun):
    """No token leaves: all layers are run, and what each would have said is told in the round's `map`."""

    def run_layers(self, look: TokenLook) -> LayerStates:
        self._states: dict[int, Tensor] = {}

        def watch(layer: int, states: Tensor) -> Onward:
            if layer in look.layers:
                look.after_layer(layer, states)
            self._states[layer] = states.clone()
            return Onward.NEXT

        every = range(1, self.plan.num_layers + 1)
        return self.target.forward_by_layer(self.committed[-1:], self.cache, watch, look_after=every)

    def readings(self, ended: LayerStates) -> dict[str, Any]:
        context = self.committed[:-1]  # of the token that was just committed
        rows = [self._read(layer, context) for layer in range(1, self.plan.num_layers + 1)]
        measures = {name: [row and row[name] for row in rows] for name in ("top1", "gap", "entropy")}
        ids = [row and row["id"] for row in rows]
        return {
            "map": {
                "measures": {**measures, "saturation": self._saturations()},
                "ids": ids,
                "texts": [None if token_id is None else self.vocabulary.lone_text(token_id) for token_id in ids],
            }
        }

    def _read(self, layer: int, context: list[int]) -> dict[str, Any] | None:
        """One layer's measures and the token that it would have chosen; None where no head reads it."""
        heads, states = self.plan.heads, self._states[layer]
        is_last = layer == self.plan.num_layers
        if not is_last and layer not in heads.layers:
            return None
        logits = heads.full_logits(layer, states).float() if is_last else heads.cut_logits(layer, states)
        adjusted = self.pipeline.adjust_draft(logits if is_last else self._cut.widen(logits), context)
        measures = {name: values[0] for name, values in confidence.measure_logits(logits).items()}
        return {**measures, "id": None if adjusted is None else argmax_rows(adjusted)[0]}

    def _saturations(self) -> list[float | None]:
        """The first layer's is null: what comes before it is not kept."""
        states = torch.cat([self._states[layer] for layer in range(1, self.plan.num_layers + 1)])
        return [None, *(rounded(value) for value in confidence.saturation(states[1:], states[:-1]).tolist())]
