"""A vocabulary cut to the tokens that a draft can say: all others have probability 0, but for those of its own text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from specviz.engine.context_tokens import ContextTokens, TiedRows
from specviz.engine.language_model import ForwardOutput, KVCache, LanguageModel


class CutVocabulary:
    """Which tokens are left of a vocabulary.

    Args:
        ids: [n] ascending.
        size: of the whole vocabulary, padding included.
        tied: the other tokens' rows of the output head, where there are any: then those of a text can be said too.
    """

    def __init__(self, ids: Tensor, size: int, tied: TiedRows | None = None) -> None:
        self.ids, self.size, self._tied = ids.long(), size, tied

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def says_context(self) -> bool:
        """Whether tokens outside it can be said where they stand in the text."""
        return self._tied is not None

    def new_context(self) -> ContextTokens:
        """The tokens outside it that stand in a text, which is empty yet."""
        return ContextTokens(self._known, self._tied)

    @cached_property
    def _known(self) -> frozenset[int]:
        return frozenset(self.ids.tolist())

    def widen(self, logits: Tensor) -> Tensor:
        """[rows, n] -> [rows, size], with -inf for the tokens that are not left."""
        whole = logits.new_full((logits.shape[0], self.size), -torch.inf)
        return whole.index_copy_(1, self.ids, logits)


class CutModelCache:
    """Implements `language_model.KVCache` for a `CutVocabularyModel`.

    Attributes:
        inner: of the model whose head was cut.
        context: the tokens outside the cut that stand in the text of its positions.
    """

    def __init__(self, inner: KVCache, context: ContextTokens) -> None:
        self.inner, self.context = inner, context

    @property
    def length(self) -> int:
        return self.inner.length

    @property
    def num_bytes(self) -> int:
        return self.inner.num_bytes

    def truncate(self, length: int) -> None:
        self.inner.truncate(length)
        self.context.truncate(length)


class CutVocabularyModel:
    """A language model whose head was cut, as a `LanguageModel` over the whole vocabulary.

    Args:
        model: its logits are over `cut`; features of its last layer are what its head is given.
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
        self.drafts_in_chains = getattr(model, "drafts_in_chains", False)
        self.cut_facts = cut_facts

    def new_cache(self) -> CutModelCache:
        return CutModelCache(self._model.new_cache(), self._cut.new_context())

    @torch.no_grad()
    def forward(
        self,
        token_ids: Sequence[int] | Tensor,
        cache: CutModelCache,
        *,
        num_logits: int | None = None,
        feature_layers: tuple[int, ...] = (),
    ) -> ForwardOutput:
        num_logits = len(token_ids) if num_logits is None else num_logits
        context = cache.context
        context.read(token_ids, cache.length)
        needs_states = num_logits > 0 and len(context) > 0 and self.num_layers not in feature_layers
        layers = (*feature_layers, self.num_layers) if needs_states else feature_layers
        output = self._model.forward(token_ids, cache.inner, num_logits=num_logits, feature_layers=layers)
        logits = self._cut.widen(output.logits)
        if num_logits and len(context):
            states = output.features[self.num_layers][len(token_ids) - num_logits :]
            context.say(states, cache.length - num_logits, logits)
        return ForwardOutput(logits, {layer: output.features[layer] for layer in feature_layers})

    def synchronize(self) -> None:
        self._model.synchronize()
