"""What a drafter asks of a draft head: entries made of the target's features, or of the head's own state.

`lean_head.py` is the head on a CPU, `torch_head.py` everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from specviz.engine.language_model import KVCache


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """What the head makes of its newest entry.

    Attributes:
        logits: [1, vocab] of the token two after the entry's; -inf for the tokens that it cannot say (see `cut_vocabulary.py`).
        state: [1, hidden], stands for the features of the next token, which the target has not seen yet.
    """

    logits: Tensor
    state: Tensor


class DraftHeadModel(Protocol):
    """A draft head over one sequence at a time; shared by runs, changed by none.

    Entry i of its cache is made of what the target knew at token i, and of token i + 1.

    Attributes:
        vocab_size: width of the logits: the target's.
        max_positions: how many entries it holds.
        num_params, weight_bytes: what it adds to its target.
        cut_facts: of the part of the vocabulary that it can say, and of what it shares with its target (JSON-plain).
        reads_ahead: how many tokens beyond its own an entry depends on: 1.
    """

    name: str
    feature_layers: tuple[int, ...]
    vocab_size: int
    max_positions: int
    num_params: int
    weight_bytes: int
    kv_bytes_per_position: int
    precision: str
    dtype: torch.dtype
    device: torch.device
    cut_facts: dict[str, Any]
    reads_ahead: int

    def new_cache(self) -> KVCache:
        """An empty cache for one run."""
        ...

    def read(
        self, features: Tensor, next_ids: Sequence[int], cache: KVCache, *, wants_output: bool = True
    ) -> HeadOutput | None:
        """Make entries at positions cache.length... from the target's features.

        Args:
            features: [rows, feature layers, hidden] of as many tokens.
            next_ids: the token after each of them.
            wants_output: whether the output of the last entry is needed; None is returned where it is not.
        """
        ...

    def go_on(self, state: Tensor, next_id: int | Tensor, cache: KVCache) -> HeadOutput:
        """Make one entry from the state that the entry before it left.

        Args:
            next_id: the token that was drafted from the output of the entry before; of a head that drafts in chains
                also as a tensor [1] (see `drafters/chain.py`).
        """
        ...
