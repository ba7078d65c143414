"""What the engine asks of a model: one forward over new tokens, and a cache that can be cut.

The engine, the drafters and the tests know models only through these protocols; the adapter for
transformers is `hf_model.py`, and the tests bring table models of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


class KVCache(Protocol):
    """Keys and values of one sequence, owned by one run.

    `length` is how many positions it holds; position i is the token at index i of the sequence.
    """

    @property
    def length(self) -> int: ...

    @property
    def num_bytes(self) -> int:
        """Bytes in use by the held positions."""
        ...

    def truncate(self, length: int) -> None:
        """Roll back to an absolute length; never grows, and `length` == `self.length` is a no-op."""
        ...


@dataclass(frozen=True, slots=True)
class ForwardOutput:
    """What one forward pass gives.

    Attributes:
        logits: [num_logits, vocab] raw output of the head for the last `num_logits` fed tokens.
        features: layer index -> [num_tokens, hidden], the hidden states *after* that many layers
            (0 is the embedding), for every fed token; only the layers that were asked for.
    """

    logits: Tensor
    features: dict[int, Tensor] = field(default_factory=dict)


def ids_on(token_ids: Sequence[int] | Tensor, device: torch.device) -> Tensor:
    """[tokens] int64 on the device; those that are there already stay there."""
    return torch.as_tensor(token_ids, dtype=torch.int64).to(device)


class LanguageModel(Protocol):
    """A causal language model over one sequence at a time; shared by runs, changed by none."""

    name: str
    revision: str | None
    vocab_size: int  # width of the logits, padding included
    max_positions: int | None  # the context, in tokens; None = no limit known
    num_layers: int
    num_params: int
    kv_bytes_per_position: int
    weight_bytes: int
    dtype: torch.dtype
    device: torch.device

    def new_cache(self) -> KVCache:
        """An empty cache for one run."""
        ...

    def forward(
        self,
        token_ids: Sequence[int] | Tensor,
        cache: KVCache,
        *,
        num_logits: int | None = None,
        feature_layers: tuple[int, ...] = (),
    ) -> ForwardOutput:
        """Feed `token_ids` at positions cache.length..., extend the cache by them.

        Args:
            token_ids: a model on a GPU also takes a tensor of its device (see `drafters/chain.py`).
            num_logits: how many trailing positions need logits; None = all, 0 = none.
            feature_layers: layers whose hidden states are returned for every fed token.
        """
        ...

    def synchronize(self) -> None:
        """Wait until the device has done all that was asked of it (for honest clocks)."""
        ...


@runtime_checkable
class EmbeddingModel(Protocol):
    """A model whose input embedding [vocab, hidden] a draft may share."""

    @property
    def embedding(self) -> Tensor: ...
