"""A draft head: one layer over the target's own features proposes, token by token (as in EAGLE-3, arXiv 2503.01840).

Entry j of its cache is made of what the target knew at token j, and of token j + 1; its output is about token
j + 2. While it drafts, its own output stands for the features of tokens that the target has not seen; entries
made so are cut when the target has spoken, and made anew from the target's features.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specviz.config import RunSettings
from specviz.drafters.base import DraftedToken, DraftStop, RunContext
from specviz.drafters.chain import DraftChain, can_chain, draw_chain
from specviz.drafters.token_loop import draft_tokens
from specviz.engine.draft_head import DraftHeadModel, HeadOutput
from specviz.engine.kv_memory import reads_ahead
from specviz.engine.language_model import KVCache, LanguageModel
from specviz.engine.prefill import CHUNK_TOKENS
from specviz.errors import BadRequest


@dataclass(frozen=True, slots=True)
class DraftHead:
    """Proposes with `model`, which was trained for the target."""

    model: DraftHeadModel
    kind: str = "draft_head"

    @classmethod
    def for_run(
        cls, target: LanguageModel, draft: LanguageModel | DraftHeadModel | None, settings: RunSettings
    ) -> DraftHead:
        if draft is None or not reads_ahead(draft):
            raise BadRequest(
                f"drafter is 'draft_head', but there is no draft head for {target.name}: name the folder of one that was "
                "trained for it, or choose prompt_lookup, early_exit or none."
            )
        return cls(draft)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return self.model.feature_layers

    def open(self, run: RunContext) -> DraftHeadSession:
        return DraftHeadSession(self.model, run)

    def describe(self) -> dict[str, Any]:
        model = self.model
        return {
            "kind": self.kind,
            "name": self.name,
            "dtype": str(model.dtype).removeprefix("torch."),
            "precision": model.precision,
            "device": str(model.device),
            "feature_layers": list(model.feature_layers),
            "num_params": model.num_params,
            "weight_bytes": model.weight_bytes,
            "kv_bytes_per_position": model.kv_bytes_per_position,
            "max_positions": model.max_positions,
            **model.cut_facts,
        }


class DraftHeadSession:
    """Drafts with a cache that, between rounds, holds entries made of the target's features only."""

    shared_layers = 0

    def __init__(self, model: DraftHeadModel, run: RunContext) -> None:
        self.cache: KVCache = run.cache_for(model)
        self._model, self._run = model, run
        self._num_true = 0  # entries made of the target's features
        self._waiting: list[Tensor] = []  # features [rows, layers, hidden] of the tokens whose entries come next
        self._newest: HeadOutput | None = None

    def prefill(self, prompt_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        """Entries of the prompt, in chunks, but for the newest one: its output begins the first draft."""
        self._num_true = self.cache.length
        self._expect(len(prompt_ids), features)
        if not self._waiting:
            return
        (rows,) = self._waiting
        for chunk in rows[:-1].split(CHUNK_TOKENS) if len(rows) > 1 else ():
            if self._run.should_stop():
                return
            self._read(chunk, prompt_ids, wants_output=False)
        self._waiting = [rows[-1:]]

    def propose(
        self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int
    ) -> Generator[DraftedToken, None, DraftStop | None]:
        self._newest = None
        if self._fits(len(committed_ids)) and not self._waiting:
            return None  # the target has not seen a token yet
        return (yield from draft_tokens(self._run, committed_ids, num_draft_tokens, round_index, self._logits_after))

    def chain(self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int) -> DraftChain | None:
        fits = self._fits(len(committed_ids) + num_draft_tokens - 1)
        if not self._waiting or not fits or not can_chain(self._run, self._model):
            return None
        self._newest = None
        return draw_chain(
            self._run,
            committed_ids,
            num_draft_tokens,
            round_index,
            self._model.device,
            lambda: self._logits_after(list(committed_ids)),
            self._go_on,
        )

    def commit(self, committed_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        self.cache.truncate(self._num_true)
        self._expect(len(committed_ids), features)

    def _logits_after(self, ids: list[int]) -> Tensor | None:
        if not self._fits(len(ids)):
            return None
        if self._newest is None:
            self._newest = self._read(torch.cat(self._waiting), ids, wants_output=True)
            self._waiting = []
            return self._newest.logits
        return self._go_on(ids[-1])

    def _go_on(self, token_id: int | Tensor) -> Tensor:
        self._newest = self._model.go_on(self._newest.state, token_id, self.cache)
        return self._newest.logits

    def _read(self, rows: Tensor, ids: Sequence[int], *, wants_output: bool) -> HeadOutput | None:
        """Make the next entries of the target's features."""
        first_next = self.cache.length + 1
        next_ids = ids[first_next : first_next + len(rows)]
        output = self._model.read(rows, next_ids, self.cache, wants_output=wants_output)
        self._num_true = self.cache.length
        return output

    def _expect(self, sequence_length: int, features: dict[int, Tensor]) -> None:
        if features and self._fits(sequence_length):
            states = [features[layer].to(self._model.device, torch.float32) for layer in self._model.feature_layers]
            self._waiting.append(torch.stack(states, 1))

    def _fits(self, sequence_length: int) -> bool:
        """Whether there is room for the entries of a text, of which the newest token has none."""
        return sequence_length - 1 <= self._model.max_positions
