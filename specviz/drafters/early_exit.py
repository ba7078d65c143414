"""Early exit: the target's own first layers propose (self-speculation, as in LayerSkip, arXiv 2404.16710).

A draft token is what an exit head reads out of the state after E layers, over its cut vocabulary: the whole head for
each draft token would cost a tenth of a target pass. Those states are kept, as are the keys and
values that the first layers have of these tokens: verification goes on from there, and runs the first E layers
only for what drafting did not feed, usually the last draft token.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specviz.config import RunSettings
from specviz.drafters.base import DraftedToken, DraftStop, RunContext
from specviz.drafters.token_loop import draft_tokens
from specviz.early_exit.exit_heads import ExitHeads, open_exit_heads
from specviz.engine.cut_vocabulary import CutVocabulary
from specviz.engine.language_model import ForwardOutput
from specviz.engine.layerwise import LayerStates, LayerwiseModel, Onward, require_layerwise
from specviz.errors import BadRequest


def refuse_beyond(exit_layer: int, num_layers: int, target_name: str) -> None:
    """Raises BadRequest where a target of so many layers has nothing left to verify with."""
    if exit_layer >= num_layers:
        raise BadRequest(
            f"exit_layer is {exit_layer}: {target_name} has {num_layers} layers, choose 1 to {num_layers - 1}."
        )


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """Proposes with the first `exit_layer` layers of the target."""

    target: LayerwiseModel
    heads: ExitHeads
    exit_layer: int
    kind: str = "early_exit"
    feature_layers: tuple[int, ...] = ()

    @classmethod
    def for_run(cls, target: LayerwiseModel, beside: ExitHeads | None, settings: RunSettings) -> EarlyExit:
        """Heads are opened where none are given (a draft model, which other drafters run, is none)."""
        require_layerwise(target, "drafter is 'early_exit'")
        if target.num_layers == 1:
            raise BadRequest(f"drafter is 'early_exit', but {target.name} has one layer only: choose another drafter.")
        heads = beside if isinstance(beside, ExitHeads) else open_exit_heads(target, settings.exit_heads)
        exit_layer = settings.exit_layer
        if exit_layer is None:
            third = max(1, target.num_layers // 3)
            exit_layer = min(heads.layers, key=lambda layer: abs(layer - third))
        refuse_beyond(exit_layer, target.num_layers, target.name)
        if exit_layer not in heads.layers:
            readable = ", ".join(map(str, heads.layers))
            raise BadRequest(f"exit_layer is {exit_layer}, and there is no exit head for it: choose from {readable}.")
        return cls(target, heads, exit_layer)

    @property
    def name(self) -> str:
        return f"{self.target.name}, first {self.exit_layer} of {self.target.num_layers} layers"

    def open(self, run: RunContext) -> EarlyExitSession:
        return EarlyExitSession(self, run)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "exit_layer": self.exit_layer,
            "num_target_layers": self.target.num_layers,
            "exit_heads": self.heads.kind,
        }


class EarlyExitSession:
    """Drafts in the first layers of the target's cache, which run ahead of the others until the round is over."""

    cache = None

    def __init__(self, drafter: EarlyExit, run: RunContext) -> None:
        self._target, self._heads, self._exit_layer = drafter.target, drafter.heads, drafter.exit_layer
        self._cut = CutVocabulary(drafter.heads.vocab_ids, drafter.target.vocab_size)
        self._run, self._cache = run, run.target_cache
        self.shared_layers = drafter.exit_layer
        self._ahead: list[Tensor] = []  # [1, hidden] after the exit layer, of the pending token and the drafts so far

    def prefill(self, prompt_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        """Nothing to do: the target's own prefill filled these layers."""

    def propose(
        self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int
    ) -> Generator[DraftedToken, None, DraftStop | None]:
        self._ahead = []
        return (yield from draft_tokens(self._run, committed_ids, num_draft_tokens, round_index, self._logits_after))

    def verify(self, token_ids: Sequence[int]) -> ForwardOutput:
        """The target's pass over the pending token and the draft, from the exit layer on.

        Returns:
            Logits for every token.
        """
        lacking = token_ids[len(self._ahead) :]
        if lacking:
            self._ahead.append(self._run_first_layers(lacking))
        ahead = LayerStates(self._exit_layer, torch.cat(self._ahead))
        ended = self._target.forward_by_layer(token_ids, self._cache, paused=ahead)
        return ForwardOutput(self._target.read_out(ended.states))

    def commit(self, committed_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        """Nothing to do: these layers were cut with the target's cache."""

    def _logits_after(self, ids: list[int]) -> Tensor:
        self._ahead.append(self._run_first_layers(ids[-1:]))
        return self._cut.widen(self._heads.cut_logits(self._exit_layer, self._ahead[-1]))

    def _run_first_layers(self, token_ids: Sequence[int]) -> Tensor:
        """[rows, hidden] states after the exit layer; the layers behind it have not seen these tokens."""
        return self._target.forward_by_layer(token_ids, self._cache, _pause, look_after=(self._exit_layer,)).states


def _pause(layer: int, states: Tensor) -> Onward:
    return Onward.PAUSE
