"""The draft head on a CPU: six matrix products and eight compiled kernels for a drafted token.

Only the newest entry's output is ever asked for, and in a single layer nothing else depends on the attention:
of all other entries a pass makes the keys and values, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.engine import head_kernels, lean_kernels
from specviz.engine.context_tokens import ContextTokens
from specviz.engine.cut_vocabulary import CutVocabulary
from specviz.engine.draft_head import HeadOutput
from specviz.engine.draft_head_net import HeadShape
from specviz.engine.lean_cache import LeanKVCache
from specviz.engine.row_linear import Float32Linear, Int8Linear

RowLinear = Int8Linear | Float32Linear
ONE = np.ones(1, np.float32)


@dataclass(frozen=True, slots=True)
class LeanHeadWeights:
    """By the names of `DraftHeadNet`; norms are float32 arrays.

    Attributes:
        embedding: [vocab, hidden], the target's.
        final_norm: [hidden], any smoothing of the output head's input included.
        head: over the cut vocabulary.
        cosines, sines: [positions, head_dim / 2].
    """

    feature_norms: np.ndarray
    fuse: RowLinear
    state_norm: np.ndarray
    token_norm: np.ndarray
    join: RowLinear
    attention_norm: np.ndarray
    qkv: RowLinear
    output: RowLinear
    mlp_norm: np.ndarray
    gate_up: RowLinear
    down: RowLinear
    final_norm: np.ndarray
    head: RowLinear
    embedding: Tensor
    cosines: np.ndarray
    sines: np.ndarray
    down_digits: int = 1

    @property
    def num_bytes(self) -> int:
        """Of what is not the target's."""
        products = (self.fuse, self.join, self.qkv, self.output, self.gate_up, self.down, self.head)
        norms = (
            self.feature_norms,
            self.state_norm,
            self.token_norm,
            self.attention_norm,
            self.mlp_norm,
            self.final_norm,
        )
        return sum(product.num_bytes for product in products) + sum(norm.nbytes for norm in norms)


class LeanHeadCache(LeanKVCache):
    """A lean cache of one layer, which knows the tokens outside the cut vocabulary that stand in its text."""

    def __init__(self, shape: HeadShape, max_positions: int, context: ContextTokens) -> None:
        super().__init__(1, shape.kv_heads, shape.head_dim, max_positions)
        self.context = context

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self.context.truncate(length)


class LeanHead:
    """See `specviz.engine.draft_head.DraftHeadModel`.

    Args:
        num_params, cut_facts: see there.
    """

    reads_ahead = 1

    def __init__(
        self,
        weights: LeanHeadWeights,
        shape: HeadShape,
        cut: CutVocabulary,
        *,
        name: str,
        num_params: int,
        cut_facts: dict[str, Any],
    ) -> None:
        self.weights, self.shape, self.name, self.num_params = weights, shape, name, num_params
        self._cut = cut
        self.feature_layers = shape.feature_layers
        self.vocab_size = cut.size
        self.max_positions = len(weights.cosines)
        self.weight_bytes = weights.num_bytes
        self.kv_bytes_per_position = 2 * 4 * shape.kv_width
        is_int8 = isinstance(weights.qkv, Int8Linear)
        self.precision, self.dtype = ("int8", torch.int8) if is_int8 else ("float32", torch.float32)
        self.device = torch.device("cpu")
        self.cut_facts = cut_facts

    def new_cache(self) -> LeanHeadCache:
        return LeanHeadCache(self.shape, self.max_positions, self._cut.new_context())

    @torch.no_grad()
    def read(
        self, features: Tensor, next_ids: Sequence[int], cache: LeanHeadCache, *, wants_output: bool = True
    ) -> HeadOutput | None:
        room = self._room(len(next_ids), cache)
        head_kernels.fuse_rows(
            features.numpy(), self.weights.feature_norms, self._epsilon, room["features"].array, room["scales"].array
        )
        states = self.weights.fuse(room["features"].tensor).numpy()
        return self._extend(states, room["scales"].array, next_ids, cache, room, wants_output)

    @torch.no_grad()
    def go_on(self, state: Tensor, next_id: int, cache: LeanHeadCache) -> HeadOutput:
        room = self._room(1, cache)
        return self._extend(state.numpy(), ONE, [next_id], cache, room, wants_output=True)

    def _extend(
        self,
        states: np.ndarray,
        state_scales: np.ndarray,
        next_ids: Sequence[int],
        cache: LeanHeadCache,
        room: dict[str, _Shared],
        wants_output: bool,
    ) -> HeadOutput | None:
        """Entries from states * state_scales, which go first into the join."""
        weights, epsilon, start, rows = self.weights, self._epsilon, cache.length, len(next_ids)
        scales, hidden = room["scales"].array, room["hidden"].array
        embeddings = weights.embedding[list(next_ids)].float().numpy()
        head_kernels.join_rows(
            states,
            state_scales,
            embeddings,
            weights.state_norm,
            weights.token_norm,
            epsilon,
            room["joined"].array,
            scales,
        )
        x = np.zeros((rows, self.shape.hidden), np.float32)
        joined = weights.join(room["joined"].tensor).numpy()
        lean_kernels.add_norm_rows(x, joined, scales, weights.attention_norm, epsilon, hidden, scales)
        qkv = weights.qkv(room["hidden"].tensor).numpy()
        num_kept = rows - 1 if wants_output else rows
        tables, keys, values = (weights.cosines, weights.sines), cache.keys[0], cache.values[0]
        if num_kept:
            lean_kernels.keep_rows(qkv[:num_kept], scales[:num_kept], start, *tables, keys, values)
        cache.advance(rows)
        cache.context.read(next_ids, start)
        if not wants_output:
            return None
        x, hidden, scales = x[-1:], room["hidden"].array[:1], scales[-1:]
        lean_kernels.attend_rows(
            qkv[-1:],
            scales,
            start + rows - 1,
            *tables,
            keys,
            values,
            room["scores"].array,
            room["heads"].array,
            scales,
        )
        attended = weights.output(room["heads"].tensor).numpy()
        lean_kernels.add_norm_rows(x, attended, scales, weights.mlp_norm, epsilon, hidden, scales)
        gate_up = weights.gate_up(room["hidden"].tensor[:1]).numpy()
        lean_kernels.gate_rows(gate_up, scales, room["wide"].array, scales)
        down = weights.down(room["wide"].tensor).numpy()
        lean_kernels.add_norm_rows(x, down, scales, weights.final_norm, epsilon, hidden, scales)
        logits = self._cut.widen(weights.head(room["hidden"].tensor[:1]).mul_(float(scales[0])))
        if self._cut.says_context:
            more_rows, more_ids = (part.numpy() for part in cache.context.rows_and_ids())
            head_kernels.say_more(hidden[0], scales[0], more_rows, more_ids, logits.numpy()[0])
        return HeadOutput(logits, torch.from_numpy(x))

    @property
    def _epsilon(self) -> np.float32:
        return np.float32(self.shape.epsilon)

    def _room(self, rows: int, cache: LeanKVCache) -> dict[str, _Shared]:
        assert cache.length + rows <= self.max_positions, f"{self.name} has no position {cache.length + rows - 1}"
        cache.reserve(cache.length + rows)
        return cache.room_for(rows, self._make_room)

    def _make_room(self, rows: int, capacity: int) -> dict[str, _Shared]:
        """Working memory for a pass over `rows` entries that attend to up to `capacity`."""
        shape = self.shape
        shapes = {
            "features": (rows, len(shape.feature_layers) * shape.hidden),
            "joined": (rows, 2 * shape.hidden),
            "hidden": (rows, shape.hidden),
            "heads": (1, shape.q_width),
            "wide": (self.weights.down_digits, shape.intermediate),
            "scales": (rows,),
            "scores": (shape.heads, capacity),
        }
        return {name: _Shared(size) for name, size in shapes.items()}


class _Shared:
    """The same memory as numpy and as torch see it."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.array = np.empty(shape, np.float32)
        self.tensor = torch.from_numpy(self.array)
