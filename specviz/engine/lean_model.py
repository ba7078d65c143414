"""A lean forward for models of the Llama family on a CPU: four matrix products a layer and little else.

The general path (`hf_model.py`) runs any model; most of its time on a small one goes into the hundred
small operations of a layer. Here they are four compiled kernels (`lean_kernels.py`), the KV cache is
written in place, and weights may be int8. A token's logits do not depend on the other tokens of its pass:
with int8 weights they are bit for bit the same alone and in a verification pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from specviz.engine import lean_kernels as kernels
from specviz.engine import lean_layerwise
from specviz.engine.language_model import ForwardOutput
from specviz.engine.layerwise import AfterLayer, LayerStates, Onward, go_on
from specviz.engine.lean_cache import LeanKVCache
from specviz.engine.lean_layerwise import LeanReadOut, key_value_product
from specviz.engine.row_linear import Float32Linear, Int8Linear
from specviz.engine.threads import ThreadGovernor

RowLinear = Int8Linear | Float32Linear


@dataclass(frozen=True, slots=True)
class LeanLayer:
    """One decoder layer. Norms are [hidden] float32 arrays."""

    attention_norm: np.ndarray
    qkv: RowLinear
    output: RowLinear
    mlp_norm: np.ndarray
    gate_up: RowLinear
    down: RowLinear


@dataclass(frozen=True, slots=True)
class LeanWeights:
    """Everything a lean model is made of.

    Attributes:
        embedding: [vocab, hidden].
        final_norm: [hidden], for the head (any smoothing of its input included).
        feature_norm: [hidden], the model's own final norm.
        cosines, sines: [positions, head_dim / 2].
        down_digits: 2 where the input of `down` is given in two digits of 8 bits (see `lean_kernels.gate_rows`).
    """

    embedding: Tensor
    layers: tuple[LeanLayer, ...]
    final_norm: np.ndarray
    feature_norm: np.ndarray
    head: RowLinear
    cosines: np.ndarray
    sines: np.ndarray
    epsilon: float
    kv_heads: int
    head_dim: int
    down_digits: int = 1


class LeanModel:
    """See `specviz.engine.language_model.LanguageModel`; features of the last layer come normalised.

    Args:
        dtype: of the weights, as it is shown: torch.int8 or torch.float32.
    """

    def __init__(
        self, weights: LeanWeights, name: str, revision: str | None, dtype: torch.dtype, num_params: int
    ) -> None:
        self.weights = weights
        self.num_layers = len(weights.layers)
        # After each layer comes the norm of the next one's attention, and of the head at the end.
        self._next_norms = (*(layer.attention_norm for layer in weights.layers[1:]), weights.final_norm)
        self.name, self.revision, self.dtype, self.num_params = name, revision, dtype, num_params
        self.precision = str(dtype).removeprefix("torch.")
        self.device = torch.device("cpu")
        self.vocab_size = weights.head.shape[0]
        self.max_positions: int | None = len(weights.cosines)
        self.weight_bytes = _num_bytes(weights)
        self.governor: ThreadGovernor | None = None

    @property
    def kv_bytes_per_position(self) -> int:
        return 2 * 4 * self.num_layers * self.weights.kv_heads * self.weights.head_dim

    @property
    def embedding(self) -> Tensor:
        """[vocab, hidden], of the input."""
        return self.weights.embedding

    def new_cache(self) -> LeanKVCache:
        weights = self.weights
        return LeanKVCache(self.num_layers, weights.kv_heads, weights.head_dim, len(weights.cosines))

    def forward(
        self,
        token_ids: Sequence[int],
        cache: LeanKVCache,
        *,
        num_logits: int | None = None,
        feature_layers: tuple[int, ...] = (),
    ) -> ForwardOutput:
        if self.governor is None:
            return self._forward(token_ids, cache, num_logits, feature_layers)
        self.governor.prepare()
        start = perf_counter()
        output = self._forward(token_ids, cache, num_logits, feature_layers)
        self.governor.observe(len(token_ids), perf_counter() - start)
        return output

    @torch.no_grad()
    def _forward(
        self,
        token_ids: Sequence[int],
        cache: LeanKVCache,
        num_logits: int | None,
        feature_layers: tuple[int, ...],
    ) -> ForwardOutput:
        weights, start, rows = self.weights, cache.length, len(token_ids)
        assert start + rows <= len(weights.cosines), f"{self.name} has no position {start + rows - 1}"
        num_logits = rows if num_logits is None else num_logits
        cache.reserve(start + rows)
        room = cache.room_for(rows, self.make_room)

        features = self.run_layers(token_ids, room, self.attention_in(cache, start, room), feature_layers)
        cache.advance(rows)
        logits = weights.head(room.hidden_tensor[rows - num_logits :])
        return ForwardOutput(logits.mul_(room.scales_tensor[rows - num_logits :, None]), features)

    def run_layers(
        self,
        token_ids: Sequence[int],
        room: Room,
        attend: Callable[[int, np.ndarray], None],
        feature_layers: tuple[int, ...] = (),
    ) -> dict[int, Tensor]:
        """All layers over tokens whose keys and values `attend` keeps; leaves the head's input in the room.

        Args:
            attend: given a layer's index and q, k, v of all rows, puts what the heads give into `room.heads`.

        Returns:
            The features that were asked for, layer -> [rows, hidden].
        """
        x = self.embed(token_ids)
        features = {0: torch.tensor(x)} if 0 in feature_layers else {}
        self.norm_for(0, x, room)
        for index in range(self.num_layers):
            self.run_layer(index, x, room, attend)
            if index + 1 in feature_layers:
                features[index + 1] = torch.tensor(x)
        if self.num_layers in features:
            features[self.num_layers] = self._normalised(features[self.num_layers])
        return features

    def embed(self, token_ids: Sequence[int]) -> np.ndarray:
        """[rows, hidden], the state that the first layer gets."""
        return self.weights.embedding[list(token_ids)].float().numpy()

    def norm_for(self, index: int, x: np.ndarray, room: Room) -> None:
        """Put the norm of states x [rows, hidden] into the room, as layer `index` wants it; after the last, the head."""
        norm = self._next_norms[index - 1] if index else self.weights.layers[0].attention_norm
        kernels.norm_rows(x, norm, np.float32(self.weights.epsilon), room.hidden, room.scales)

    def run_layer(self, index: int, x: np.ndarray, room: Room, attend: Callable[[int, np.ndarray], None]) -> None:
        """One layer, in place on x [rows, hidden]: finds its input's norm in the room, and leaves there the next one's.

        Args:
            attend: as in `run_layers`.
        """
        layer, scales, epsilon = self.weights.layers[index], room.scales, np.float32(self.weights.epsilon)
        attend(index, layer.qkv(room.hidden_tensor).numpy())
        attended = layer.output(room.heads_tensor).numpy()
        kernels.add_norm_rows(x, attended, scales, layer.mlp_norm, epsilon, room.hidden, scales)
        kernels.gate_rows(layer.gate_up(room.hidden_tensor).numpy(), scales, room.wide, scales)
        down = layer.down(room.wide_tensor).numpy()
        kernels.add_norm_rows(x, down, scales, self._next_norms[index], epsilon, room.hidden, scales)

    def attention_in(self, cache: LeanKVCache, start: int, room: Room) -> Callable[[int, np.ndarray], None]:
        """`attend` for rows that follow each other in one sequence, the first of them at position `start`."""
        tables = (self.weights.cosines, self.weights.sines)

        def attend(index: int, qkv: np.ndarray) -> None:
            kept = (cache.keys[index], cache.values[index])
            kernels.attend_rows(qkv, room.scales, start, *tables, *kept, room.scores, room.heads, room.scales)

        return attend

    def synchronize(self) -> None:
        """A CPU is never behind."""

    def forward_by_layer(
        self,
        token_ids: Sequence[int],
        cache: LeanKVCache,
        after_layer: AfterLayer = go_on,
        *,
        look_after: Collection[int] = (),
        paused: LayerStates | None = None,
    ) -> LayerStates:
        """See `specviz.engine.layerwise.LayerwiseModel`."""
        if self.governor is None:
            return lean_layerwise.forward_by_layer(self, token_ids, cache, after_layer, look_after, paused)
        self.governor.prepare()
        start, asked_seconds = perf_counter(), 0.0

        def ask(layer: int, states: Tensor) -> Onward:
            nonlocal asked_seconds
            before = perf_counter()
            onward = after_layer(layer, states)
            asked_seconds += perf_counter() - before
            return onward

        ended = lean_layerwise.forward_by_layer(self, token_ids, cache, ask, look_after, paused)
        num_run = ended.layer - (paused.layer if paused else 0)
        if 2 * num_run >= self.num_layers:  # shorter passes say little of whole ones, which the governor knows
            seconds = perf_counter() - start - asked_seconds
            self.governor.observe(len(token_ids), seconds * self.num_layers / num_run)
        return ended

    def read_out(self, states: Tensor) -> Tensor:
        """See `specviz.engine.layerwise.LayerwiseModel`."""
        return LeanReadOut(self, self.weights.head)(states)

    def cut_read_out(self, vocab_ids: Tensor) -> LeanReadOut:
        """See `specviz.engine.layerwise.LayerwiseModel`."""
        return LeanReadOut(self, self.weights.head.part(vocab_ids))

    @cached_property
    def key_value_products(self) -> tuple[RowLinear, ...]:
        """For each layer what makes only keys and values of its normalised input; made when it is first asked for."""
        return tuple(key_value_product(self, index) for index in range(self.num_layers))

    def _normalised(self, states: Tensor) -> Tensor:
        shape = states.shape[-1:]
        return torch.rms_norm(states, shape, torch.from_numpy(self.weights.feature_norm), self.weights.epsilon)

    def make_room(self, rows: int, capacity: int) -> Room:
        """Working memory for a pass over `rows` tokens that attend to up to `capacity` positions."""
        layer = self.weights.layers[0]
        shapes = (
            (rows, layer.qkv.shape[1]),
            (rows, layer.output.shape[1]),
            (rows * self.weights.down_digits, layer.down.shape[1]),
            (rows,),
        )
        return Room.of_shapes(shapes, (layer.output.shape[1] // self.weights.head_dim, capacity))


@dataclass(frozen=True, slots=True)
class Room:
    """Arrays for a pass over so many rows to work in; a run's own, and used again by its next pass of that size."""

    hidden: np.ndarray
    hidden_tensor: Tensor  # the same memory, as torch sees it; so for the others
    heads: np.ndarray
    heads_tensor: Tensor
    wide: np.ndarray
    wide_tensor: Tensor
    scales: np.ndarray
    scales_tensor: Tensor
    scores: np.ndarray

    @classmethod
    def of_shapes(cls, shapes: Sequence[tuple[int, ...]], scores: tuple[int, int]) -> Room:
        arrays = [np.empty(shape, np.float32) for shape in shapes]
        shared = [view for array in arrays for view in (array, torch.from_numpy(array))]
        return cls(*shared, np.empty(scores, np.float32))


def _num_bytes(weights: LeanWeights) -> int:
    linears = [linear for layer in weights.layers for linear in (layer.qkv, layer.output, layer.gate_up, layer.down)]
    norms = [norm for layer in weights.layers for norm in (layer.attention_norm, layer.mlp_norm)]
    return (
        sum(linear.num_bytes for linear in (*linears, weights.head))
        + sum(norm.nbytes for norm in (*norms, weights.final_norm))
        + weights.embedding.numel() * weights.embedding.element_size()
    )
