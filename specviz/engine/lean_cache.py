"""The KV cache of one run on a lean model: two arrays that are written in place, and a length."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from specviz.engine.cut_length import CutLength

if TYPE_CHECKING:
    from specviz.engine.lean_model import Room

FIRST_CAPACITY = 256  # positions
MOST_TOKENS_KEPT = 32  # working memory is kept for passes of up to so many tokens


class LeanKVCache(CutLength):
    """Implements `language_model.KVCache`.

    Attributes:
        keys, values: [layers, kv_heads, capacity, head_dim] float32.
    """

    def __init__(self, num_layers: int, kv_heads: int, head_dim: int, max_positions: int) -> None:
        super().__init__()
        self._max_positions = max_positions
        self.keys, self.values = (
            np.zeros((num_layers, kv_heads, min(FIRST_CAPACITY, max_positions), head_dim), np.float32) for _ in range(2)
        )
        self._rooms: dict[int, Any] = {}

    @property
    def num_bytes(self) -> int:
        layers, heads, _, head_dim = self.keys.shape
        return 2 * layers * heads * self.length * head_dim * self.keys.itemsize

    def reserve(self, length: int) -> None:
        """Make room for `length` positions; what is held stays."""
        layers, heads, capacity, head_dim = self.keys.shape
        if length <= capacity:
            return
        larger = (layers, heads, min(max(length, 2 * capacity), max(length, self._max_positions)), head_dim)
        for name in ("keys", "values"):
            held, roomy = getattr(self, name), np.zeros(larger, np.float32)
            roomy[:, :, :capacity] = held
            setattr(self, name, roomy)
        self._rooms.clear()

    def room_for(self, num_tokens: int, make: Callable[[int, int], Room]) -> Room:
        """Working memory for a pass over `num_tokens`, from `make(num_tokens, capacity)` where there is none yet."""
        if num_tokens not in self._rooms:
            if num_tokens > MOST_TOKENS_KEPT:
                return make(num_tokens, self.keys.shape[2])
            self._rooms[num_tokens] = make(num_tokens, self.keys.shape[2])
        return self._rooms[num_tokens]
