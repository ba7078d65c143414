"""The static path, for GPUs: the Llama family in plain PyTorch, with few kernels a layer and a cache of fixed tensors.

Eager decoding of a small model on a GPU costs what launching its kernels costs, not what reading its weights costs.
So queries, keys and values are one product, and so are gate and up; positions, mask and rotations are made once a
pass; keys and values go to their places in memory that stays; and nothing waits for the device but ids that come as a list. It is the form that a
CUDA graph needs (fixed addresses, one position tensor), but no graph is captured here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional

from specviz.engine.hf_read_out import CutReadOut
from specviz.engine.language_model import ForwardOutput, ids_on
from specviz.engine.layerwise import AfterLayer, LayerStates, Onward, go_on
from specviz.engine.static_cache import StaticKVCache


@dataclass(frozen=True, slots=True)
class StaticLayer:
    """Norms [hidden] and matrices [out, in] of one layer; `qkv` and `gate_up` are stacked."""

    attention_norm: Tensor
    qkv: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class StaticWeights:
    """A model of the Llama family, on one device.

    Attributes:
        embedding, head: [vocab, hidden], perhaps the same tensor.
        cosines, sines: [positions, head_dim / 2].
    """

    embedding: Tensor
    layers: tuple[StaticLayer, ...]
    final_norm: Tensor
    head: Tensor
    cosines: Tensor
    sines: Tensor
    epsilon: float
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Where:
    """What all layers of one pass need to know of its tokens' places.

    Attributes:
        positions: [rows].
        cosines, sines: [rows, 1, head_dim / 2].
        mask: [group * rows, span] bool, the rows once for each query head of a group.
    """

    positions: Tensor
    cosines: Tensor
    sines: Tensor
    mask: Tensor


class StaticModel:
    """See `specviz.engine.layerwise.LayerwiseModel`; features of the last layer come normalised."""

    drafts_in_chains = True  # see `drafters/chain.py`

    def __init__(self, weights: StaticWeights, name: str, revision: str | None) -> None:
        self.weights, self.name, self.revision = weights, name, revision
        self.num_layers, self.vocab_size = len(weights.layers), len(weights.head)
        self.max_positions: int | None = len(weights.cosines)
        self.dtype, self.device = weights.embedding.dtype, weights.embedding.device
        self.precision = str(self.dtype).removeprefix("torch.")
        parameters = _parameters(weights)
        self.num_params = sum(tensor.numel() for tensor in parameters)
        self.weight_bytes = sum(tensor.numel() * tensor.element_size() for tensor in parameters)
        self.kv_bytes_per_position = (
            2 * self.num_layers * weights.kv_heads * weights.head_dim * weights.embedding.element_size()
        )

    @property
    def embedding(self) -> Tensor:
        """[vocab, hidden], of the input."""
        return self.weights.embedding

    def new_cache(self) -> StaticKVCache:
        weights = self.weights
        return StaticKVCache(
            self.num_layers, weights.kv_heads, weights.head_dim, self.max_positions, self.dtype, self.device
        )

    @torch.no_grad()
    def forward(
        self,
        token_ids: Sequence[int] | Tensor,
        cache: StaticKVCache,
        *,
        num_logits: int | None = None,
        feature_layers: tuple[int, ...] = (),
    ) -> ForwardOutput:
        rows = len(token_ids)
        num_logits = rows if num_logits is None else num_logits
        where = self._where(cache, cache.length, rows)
        x = self._embed(token_ids)
        features = {0: x} if 0 in feature_layers else {}
        for index in range(self.num_layers):
            x = self._run_layer(index, x, cache, where)
            if index + 1 in feature_layers:
                features[index + 1] = x
        cache.advance(rows)
        x = self._norm(x, self.weights.final_norm)
        if self.num_layers in features:
            features[self.num_layers] = x
        return ForwardOutput(functional.linear(x[rows - num_logits :], self.weights.head), features)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.no_grad()
    def forward_by_layer(
        self,
        token_ids: Sequence[int],
        cache: StaticKVCache,
        after_layer: AfterLayer = go_on,
        *,
        look_after: Collection[int] = (),
        paused: LayerStates | None = None,
    ) -> LayerStates:
        """See `specviz.engine.layerwise.LayerwiseModel`."""
        rows = len(token_ids)
        where = self._where(cache, cache.length + (0 if paused else cache.num_ahead), rows)
        x = paused.states if paused else self._embed(token_ids)
        for layer in range((paused.layer if paused else 0) + 1, self.num_layers + 1):
            x = self._run_layer(layer - 1, x, cache, where)
            onward = after_layer(layer, x) if layer in look_after else Onward.NEXT
            if onward is Onward.NEXT or layer == self.num_layers:
                continue
            if onward is Onward.PAUSE:
                cache.pause(rows)
            else:
                for skipped in range(layer, self.num_layers):
                    self._keep_only(skipped, x, cache, where)
                cache.advance(rows)
            return LayerStates(layer, x)
        cache.advance(rows)
        return LayerStates(self.num_layers, x)

    @torch.no_grad()
    def read_out(self, states: Tensor) -> Tensor:
        """See `specviz.engine.layerwise.LayerwiseModel`."""
        return functional.linear(self._norm(states, self.weights.final_norm), self.weights.head)

    def cut_read_out(self, vocab_ids: Tensor) -> CutReadOut:
        """See `specviz.engine.layerwise.LayerwiseModel`."""
        head = self.weights.head[vocab_ids.to(self.device)]
        return CutReadOut(lambda states: self._norm(states, self.weights.final_norm), head, None, None)

    # ---- a pass ----

    def _where(self, cache: StaticKVCache, start: int, rows: int) -> Where:
        assert start + rows <= self.max_positions, f"{self.name} has no position {start + rows - 1}"
        positions, mask = cache.begin(start, rows)
        weights = self.weights
        tables = (table[positions].unsqueeze(1) for table in (weights.cosines, weights.sines))
        return Where(positions, *tables, mask.repeat(weights.heads // weights.kv_heads, 1))

    def _embed(self, token_ids: Sequence[int] | Tensor) -> Tensor:
        return functional.embedding(ids_on(token_ids, self.device), self.weights.embedding)

    def _norm(self, x: Tensor, norm: Tensor) -> Tensor:
        return functional.rms_norm(x, norm.shape, norm, self.weights.epsilon)

    def _run_layer(self, index: int, x: Tensor, cache: StaticKVCache, where: Where) -> Tensor:
        """[rows, hidden] states after one more layer."""
        layer = self.weights.layers[index]
        qkv = functional.linear(self._norm(x, layer.attention_norm), layer.qkv)
        x = x + functional.linear(self._attend(index, qkv, cache, where), layer.output)
        gate, up = functional.linear(self._norm(x, layer.mlp_norm), layer.gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, layer.down)

    def _attend(self, index: int, qkv: Tensor, cache: StaticKVCache, where: Where) -> Tensor:
        """Keep keys and values, and attend: [rows, heads * head_dim].

        The query heads of a group share their keys, so they stand as further rows before them.
        """
        rows, weights = len(qkv), self.weights
        kv_heads, head_dim = weights.kv_heads, weights.head_dim
        queries, kv = qkv.split((weights.heads * head_dim, 2 * kv_heads * head_dim), -1)
        self._keep(index, kv, cache, where)
        queries = _rotated(queries.view(rows, weights.heads, head_dim), where)
        queries = queries.view(rows, kv_heads, -1, head_dim).permute(1, 2, 0, 3).reshape(1, kv_heads, -1, head_dim)
        span = where.mask.shape[1]
        keys, values = (held[None, index, :, :span] for held in (cache.keys, cache.values))
        attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=where.mask)
        return attended.view(kv_heads, -1, rows, head_dim).permute(2, 0, 1, 3).reshape(rows, -1)

    def _keep(self, index: int, kv: Tensor, cache: StaticKVCache, where: Where) -> None:
        """Keys and values [rows, 2 * kv_heads * head_dim], the keys not rotated yet, to their places."""
        keys, values = kv.view(len(kv), 2, self.weights.kv_heads, self.weights.head_dim).unbind(1)
        cache.keys[index].index_copy_(1, where.positions, _rotated(keys, where).transpose(0, 1))
        cache.values[index].index_copy_(1, where.positions, values.transpose(0, 1))

    def _keep_only(self, index: int, x: Tensor, cache: StaticKVCache, where: Where) -> None:
        """Keys and values of a layer that the states x skip."""
        layer, num_queries = self.weights.layers[index], self.weights.heads * self.weights.head_dim
        self._keep(index, functional.linear(self._norm(x, layer.attention_norm), layer.qkv[num_queries:]), cache, where)


def _rotated(x: Tensor, where: Where) -> Tensor:
    """[rows, heads, head_dim] turned by its positions (Su et al. 2021, RoFormer, arXiv 2104.09864, equation 34)."""
    first, second = x.chunk(2, -1)
    turned = (first * where.cosines - second * where.sines, second * where.cosines + first * where.sines)
    return torch.cat(turned, -1)


def _parameters(weights: StaticWeights) -> list[Tensor]:
    """Each once: a tied head is the embedding."""
    layers = [getattr(layer, field.name) for layer in weights.layers for field in fields(layer)]
    head = [] if weights.head is weights.embedding else [weights.head]
    return [weights.embedding, *layers, weights.final_norm, *head]
