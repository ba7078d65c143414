"""Early exit: the target's own first layers propose (self-speculation, as in LayerSkip, arXiv 2404.16710).

The drafts are made by the first E layers with the target's final norm and head, in a view that
shares the target's weights and, in this run's cache, the keys and values of those layers. They are
cut back before the full verification, which computes all layers anew.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from specviz.config import RunSettings
from specviz.drafters.base import DraftedToken, DraftStop, RunContext
from specviz.drafters.draft_model import ModelDraftSession
from specviz.engine.language_model import LanguageModel, LayeredModel
from specviz.errors import BadRequest


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """Proposes with `view`, the first layers of the target."""

    view: LanguageModel
    exit_layer: int
    num_target_layers: int
    kind: str = "early_exit"
    feature_layers: tuple[int, ...] = ()

    @classmethod
    def for_run(cls, target: LanguageModel, draft: LanguageModel | None, settings: RunSettings) -> EarlyExit:
        if not isinstance(target, LayeredModel):
            raise BadRequest(
                f"drafter is 'early_exit', but {target.name} cannot be run layer by layer: choose another drafter."
            )
        exit_layer = settings.exit_layer or max(1, target.num_layers // 3)
        return cls(target.first_layers(exit_layer), exit_layer, target.num_layers)

    @property
    def name(self) -> str:
        return self.view.name

    def open(self, run: RunContext) -> EarlyExitSession:
        return EarlyExitSession(self.view, run, self.exit_layer)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "exit_layer": self.exit_layer,
            "num_target_layers": self.num_target_layers,
        }


class EarlyExitSession(ModelDraftSession):
    """Drafts in the first layers of the target's cache, and leaves them as long as it found them."""

    def __init__(self, view: LanguageModel, run: RunContext, exit_layer: int) -> None:
        super().__init__(view, run.target_cache.first_layers(exit_layer), run)
        self.cache = None
        self.shared_layers = exit_layer

    def prefill(self, prompt_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        """Nothing to do: the target's own prefill filled these layers."""

    def propose(
        self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int
    ) -> Generator[DraftedToken, None, DraftStop | None]:
        length_before = self._own_cache.length
        try:
            return (yield from super().propose(committed_ids, num_draft_tokens, round_index))
        finally:
            self._own_cache.truncate(length_before)

    def commit(self, committed_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        """Nothing to do: these layers were cut with the target's cache."""
