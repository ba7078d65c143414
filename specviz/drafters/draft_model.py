"""A draft model: a smaller language model with the target's tokenizer proposes, token by token."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from specviz.config import RunSettings
from specviz.drafters.base import DraftedToken, DraftStop, RunContext
from specviz.engine.dice import draw
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
        ids = list(committed_ids)
        longest = len(committed_ids) + num_draft_tokens
        while len(ids) < longest:
            if not self._fits(len(ids)):
                return "context"
            lacking = ids[self._own_cache.length :]
            logits = self._model.forward(lacking, self._own_cache, num_logits=1).logits
            drafted = self._choose(logits, ids, round_index)
            if drafted is None:
                return "confidence"
            yield drafted
            ids.append(drafted.token_id)
            if drafted.token_id in self._run.eos_token_ids and len(ids) < longest:
                return "eos"
        return None

    def commit(self, committed_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        self._own_cache.truncate(min(self._own_cache.length, len(committed_ids) - 1))

    def _choose(self, logits: Tensor, ids: list[int], round_index: int) -> DraftedToken | None:
        """The token after `ids`; None if the distribution there is not confident enough."""
        run = self._run
        adjusted = run.pipeline.adjust(logits, ids)
        needs_model_probs = run.wants_model_probs or run.confidence is not None
        model_probs = adjusted.softmax(-1)[0] if needs_model_probs else None
        # DESIGN invariant 4: decided by the distribution, before a token of it is drawn.
        if run.confidence is not None and float(model_probs.max()) < run.confidence:
            return None
        if run.pipeline.is_greedy:
            return DraftedToken(int(adjusted[0].argmax()), None, model_probs)
        probs = run.pipeline.distribution(adjusted)[0]
        return DraftedToken(draw(probs, run.dice.uniform(round_index, len(ids), "draft")), probs, model_probs)

    def _fits(self, sequence_length: int) -> bool:
        return self._model.max_positions is None or sequence_length <= self._model.max_positions
