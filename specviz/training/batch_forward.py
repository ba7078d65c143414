"""One token for each of many sequences in one pass over a lean model: how a target writes a corpus.

A row is the same bits as in a run of its own (`lean_kernels.py`), so what a sequence says does not depend
on those beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specviz.engine import lean_kernels as kernels
from specviz.engine.lean_cache import LeanKVCache
from specviz.engine.lean_model import LeanModel


@dataclass(frozen=True, slots=True)
class NextTokens:
    """What a pass gives, a row a sequence.

    Attributes:
        tokens: [rows] int64, chosen from the target's distribution after the fed token.
        log_sums: [rows] float32, log of the sum of the exponentials of all logits.
        features: layer -> [rows, hidden] float32 of the fed tokens.
    """

    tokens: np.ndarray
    log_sums: np.ndarray
    features: dict[int, Tensor]


class BatchForward:
    """`rows` sequences of up to `capacity` tokens each, at their own lengths.

    Attributes:
        lengths: [rows] int64, how many tokens each sequence holds; 0 starts a row anew.
    """

    def __init__(self, model: LeanModel, rows: int, capacity: int) -> None:
        weights = model.weights
        shape = (model.num_layers, rows, weights.kv_heads, capacity, weights.head_dim)
        self._model = model
        self._keys, self._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self._room = model.make_room(rows, capacity)
        self.lengths = np.zeros(rows, np.int64)

    def start_row(self, row: int, prefix: LeanKVCache) -> None:
        """The row's sequence begins anew, with what `prefix` holds."""
        length = prefix.length
        self._keys[:, row, :, :length] = prefix.keys[:, :, :length]
        self._values[:, row, :, :length] = prefix.values[:, :, :length]
        self.lengths[row] = length

    @torch.no_grad()
    def step(
        self, token_ids: Sequence[int], temperatures: np.ndarray, uniforms: np.ndarray, feature_layers: tuple[int, ...]
    ) -> NextTokens:
        """Feed one token to every sequence, and choose the next (temperature 0 is the argmax).

        Args:
            token_ids, temperatures, uniforms: one a row; `uniforms` in [0, 1).
        """
        room, weights = self._room, self._model.weights

        def attend(index: int, qkv: np.ndarray) -> None:
            kernels.attend_apart(
                qkv,
                room.scales,
                self.lengths,
                weights.cosines,
                weights.sines,
                self._keys[index],
                self._values[index],
                room.scores,
                room.heads,
                room.scales,
            )

        features = self._model.run_layers(token_ids, room, attend, feature_layers)
        self.lengths += 1
        rows = len(token_ids)
        tokens, log_sums = np.empty(rows, np.int64), np.empty(rows, np.float32)
        logits = weights.head(room.hidden_tensor).numpy()
        kernels.choose_rows(logits, room.scales, temperatures, uniforms, tokens, log_sums)
        return NextTokens(tokens, log_sums, features)
