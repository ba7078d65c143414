"""A vocabulary cut to the tokens that a draft can say: all others have probability 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specviz.engine.language_model import ForwardOutput, KVCache, LanguageModel


class CutVocabulary:
    """Which tokens are left of a vocabulary.

    Args:
        ids: [n] ascending.
        size: of the whole vocabulary, padding included.
    """

    def __init__(self, ids: Tensor, size: int) -> None:
        self.ids, self.size = ids.long(), size

    def __len__(self) -> int:
        return len(self.ids)

    def widen(self, logits: Tensor) -> Tensor:
        """[rows, n] -> [rows, size], with -inf for the tokens that are not left."""
        whole = logits.new_full((logits.shape[0], self.size), -torch.inf)
        return whole.index_copy_(1, self.ids, logits)


class CutVocabularyModel:
    """A language model whose head was cut, as a `LanguageModel` over the whole vocabulary.

    Args:
        model: its logits are over `cut`.
        num_params, weight_bytes: what it adds to its target.
        cut_facts: what there is to tell of the cut, and of what it uses of its target's and is counted there.
    """

    def __init__(
        self,
        model: LanguageModel,
        cut: CutVocabulary,
        *,
        num_params: int,
        weight_bytes: int,
        cut_facts: dict[str, Any],
        precision: str,
    ) -> None:
        self._model, self._cut = model, cut
        self.name, self.revision = model.name, model.revision
        self.vocab_size = cut.size
        self.max_positions, self.num_layers = model.max_positions, model.num_layers
        self.kv_bytes_per_position = model.kv_bytes_per_position
        self.dtype, self.device, self.precision = model.dtype, model.device, precision
        self.num_params, self.weight_bytes = num_params, weight_bytes
        self.cut_facts = cut_facts

    def new_cache(self) -> KVCache:
        return self._model.new_cache()

    def forward(
        self,
        token_ids: Sequence[int],
        cache: KVCache,
        *,
        num_logits: int | None = None,
        feature_layers: tuple[int, ...] = (),
    ) -> ForwardOutput:
        output = self._model.forward(token_ids, cache, num_logits=num_logits, feature_layers=feature_layers)
        return ForwardOutput(self._cut.widen(output.logits), output.features)

    def synchronize(self) -> None:
        self._model.synchronize()
