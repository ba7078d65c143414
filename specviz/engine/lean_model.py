"""A lean forward for models of the Llama family on a CPU: four matrix products a layer and little else.

The general path (`hf_model.py`) runs any model; most of its time on a small one goes into the hundred
small operations of a layer. Here they are four compiled kernels (`lean_kernels.py`), the KV cache is
written in place, and weights may be int8. A token's logits do not depend on the other tokens of its pass:
with int8 weights they are bit for bit the same alone and in a verification pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from specviz.engine import lean_kernels as kernels
from specviz.engine.language_model import ForwardOutput
from specviz.engine.lean_cache import FirstLayers, LeanKVCache
from specviz.engine.row_linear import Float32Linear, Int8Linear
from specviz.engine.threads import ThreadGovernor
from specviz.errors import BadRequest

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
        self._use(weights)
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
        cache: LeanKVCache | FirstLayers,
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
        cache: LeanKVCache | FirstLayers,
        num_logits: int | None,
        feature_layers: tuple[int, ...],
    ) -> ForwardOutput:
        weights, start, rows = self.weights, cache.length, len(token_ids)
        assert start + rows <= len(weights.cosines), f"{self.name} has no position {start + rows - 1}"
        num_logits = rows if num_logits is None else num_logits
        cache.reserve(start + rows)
        room = cache.room_for(rows, self.make_room)

        def attend(index: int, qkv: np.ndarray) -> None:
            keys, values = cache.keys[index], cache.values[index]
            kernels.attend_rows(
                qkv,
                room.scales,
                start,
                weights.cosines,
                weights.sines,
                keys,
                values,
                room.scores,
                room.heads,
                room.scales,
            )

        features = self.run_layers(token_ids, room, attend, feature_layers)
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
        weights = self.weights
        hidden, wide, scales, epsilon = room.hidden, room.wide, room.scales, np.float32(weights.epsilon)
        x = weights.embedding[list(token_ids)].float().numpy()
        features = {0: torch.tensor(x)} if 0 in feature_layers else {}
        kernels.norm_rows(x, weights.layers[0].attention_norm, epsilon, hidden, scales)
        for index, layer in enumerate(weights.layers):
            attend(index, layer.qkv(room.hidden_tensor).numpy())
            kernels.add_norm_rows(
                x, layer.output(room.heads_tensor).numpy(), scales, layer.mlp_norm, epsilon, hidden, scales
            )
            kernels.gate_rows(layer.gate_up(room.hidden_tensor).numpy(), scales, wide, scales)
            kernels.add_norm_rows(
                x, layer.down(room.wide_tensor).numpy(), scales, self._next_norms[index], epsilon, hidden, scales
            )
            if index + 1 in feature_layers:
                features[index + 1] = torch.tensor(x)
        if self.num_layers in features:
            features[self.num_layers] = self._normalised(features[self.num_layers])
        return features

    def synchronize(self) -> None:
        """A CPU is never behind."""

    def first_layers(self, num_layers: int) -> LeanModel:
        """A model of the first layers with the final norm and the head, over the same weights.

        It runs in `LeanKVCache.first_layers` of a cache of the whole model.

        Raises:
            BadRequest: no such number of layers.
        """
        if not 1 <= num_layers <= self.num_layers:
            raise BadRequest(
                f"exit_layer is {num_layers}: {self.name} has {self.num_layers} layers, choose 1 to {self.num_layers}."
            )
        view = copy.copy(self)
        view._use(replace(self.weights, layers=self.weights.layers[:num_layers]))
        view.governor = None  # its passes are shorter than those that the governor knows
        view.name = f"{self.name}, first {num_layers} of {self.num_layers} layers"
        return view

    def _use(self, weights: LeanWeights) -> None:
        self.weights = weights
        self.num_layers = len(weights.layers)
        # After each layer comes the norm of the next one's attention, and of the head at the end.
        self._next_norms = (*(layer.attention_norm for layer in weights.layers[1:]), weights.final_norm)

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
