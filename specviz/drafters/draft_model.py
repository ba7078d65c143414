"""A draft model: a smaller language model with the target's tokenizer proposes, token by token."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from specviz.config import RunSettings
from specviz.drafters.base import DraftedToken, DraftStop, RunContext
from specviz.drafters.chain import DraftChain, can_chain, draw_chain
from specviz.drafters.token_loop import draft_tokens
from specviz.engine.language_model import KVCache, LanguageModel
from specviz.engine.prefill import feed_in_chunks
from specviz.errors import BadRequest


@dataclass(frozen=True, slots=True)
class DraftModel:
    """Proposes with a model of its own; `model` may differ from the target in width, dtype and device."""

    model: LanguageModel
    kind: str = "draft_model"
    feature_layers: tuple[int, ...] = ()

    @classmethod
    def for_run(cls, target: LanguageModel, draft: LanguageModel | None, settings: RunSettings) -> DraftModel:
        if draft is None:
            raise BadRequest(
                "drafter is 'draft_model', but no draft model was given: name one, or choose prompt_lookup, early_exit or none."
            )
        return cls(draft)

    @property
    def name(self) -> str:
        return self.model.name

    def open(self, run: RunContext) -> ModelDraftSession:
        return ModelDraftSession(self.model, run.cache_for(self.model), run)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "revision": self.model.revision,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "precision": getattr(self.model, "precision", None),
            "device": str(self.model.device),
            "num_layers": self.model.num_layers,
            "num_params": self.model.num_params,
            "weight_bytes": self.model.weight_bytes,
            "kv_bytes_per_position": self.model.kv_bytes_per_position,
            **getattr(self.model, "cut_facts", {}),
        }


class ModelDraftSession:
    """Drafts in `cache` with `model`; one of them for each run."""

    shared_layers = 0

    def __init__(self, model: LanguageModel, cache: KVCache, run: RunContext) -> None:
        self.cache: KVCache | None = cache
        self._model, self._own_cache, self._run = model, cache, run

    def prefill(self, prompt_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        if self._fits(len(prompt_ids)):
            lacking = prompt_ids[self._own_cache.length : -1]
            feed_in_chunks(self._model, lacking, self._own_cache, self._run.should_stop)

    def propose(
        self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int
    ) -> Generator[DraftedToken, None, DraftStop | None]:
        return (yield from draft_tokens(self._run, committed_ids, num_draft_tokens, round_index, self._logits_after))

    def chain(self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int) -> DraftChain | None:
        if not can_chain(self._run, self._model) or not self._fits(len(committed_ids) + num_draft_tokens - 1):
            return None
        lacking = committed_ids[self._own_cache.length :]
        return draw_chain(
            self._run,
            committed_ids,
            num_draft_tokens,
            round_index,
            self._model.device,
            lambda: self._feed(lacking),
            self._feed,
        )

    def commit(self, committed_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        self._own_cache.truncate(min(self._own_cache.length, len(committed_ids) - 1))

    def _logits_after(self, ids: list[int]) -> Tensor | None:
        if not self._fits(len(ids)):
            return None
        return self._feed(ids[self._own_cache.length :])

    def _feed(self, token_ids: Sequence[int] | Tensor) -> Tensor:
        return self._model.forward(token_ids, self._own_cache, num_logits=1).logits

    def _fits(self, sequence_length: int) -> bool:
        return self._model.max_positions is None or sequence_length <= self._model.max_positions
