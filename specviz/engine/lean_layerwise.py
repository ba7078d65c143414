"""The lean forward, layer by layer: looked into, left early, or interrupted and taken up again. See `layerwise.py`.

A token that leaves early costs each skipped layer its norm and the k and v rows of its first product: on the embedded
target 6% of the layer's multiplications. One product for all skipped layers together would need fewer calls, but
weights rounded anew, with the norms in them: keys and values would not be the same bits as the layer's own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from specviz.engine import lean_kernels as kernels
from specviz.engine.layerwise import AfterLayer, LayerStates, Onward
from specviz.engine.lean_cache import LeanKVCache
from specviz.engine.row_linear import Float32Linear, Int8Linear

if TYPE_CHECKING:
    from specviz.engine.lean_model import LeanModel, Room


@torch.no_grad()
def forward_by_layer(
    model: LeanModel,
    token_ids: Sequence[int],
    cache: LeanKVCache,
    after_layer: AfterLayer,
    look_after: Collection[int],
    paused: LayerStates | None,
) -> LayerStates:
    """`LayerwiseModel.forward_by_layer`."""
    rows = len(token_ids)
    start = cache.length if paused else cache.length + cache.num_ahead
    assert start + rows <= model.max_positions, f"{model.name} has no position {start + rows - 1}"
    cache.reserve(start + rows)
    room = cache.room_for(rows, model.make_room)
    attend = model.attention_in(cache, start, room)
    first = paused.layer if paused else 0
    x = paused.states.numpy().copy() if paused else model.embed(token_ids)

    model.norm_for(first, x, room)
    for layer in range(first + 1, model.num_layers + 1):
        model.run_layer(layer - 1, x, room, attend)
        onward = after_layer(layer, torch.from_numpy(x)) if layer in look_after else Onward.NEXT
        if onward is Onward.NEXT or layer == model.num_layers:
            continue
        if onward is Onward.PAUSE:
            cache.pause(rows)
        else:
            _propagate(model, x, layer, start, cache, room)
            cache.advance(rows)
        return LayerStates(layer, torch.from_numpy(x))
    cache.advance(rows)
    return LayerStates(model.num_layers, torch.from_numpy(x))


class LeanReadOut:
    """Final norm and output head, or a part of it.

    Args:
        head: gives [rows, outputs] of normalised states over their largest magnitude.
    """

    def __init__(self, model: LeanModel, head: Int8Linear | Float32Linear) -> None:
        self._norm, self._epsilon = model.weights.final_norm, np.float32(model.weights.epsilon)
        self._head, self.num_bytes = head, head.num_bytes

    @torch.no_grad()
    def __call__(self, states: Tensor) -> Tensor:
        """[rows, hidden] residual states -> [rows, outputs] logits."""
        x = states.contiguous().numpy()
        hidden, scales = np.empty_like(x), np.empty(len(x), np.float32)
        kernels.norm_rows(x, self._norm, self._epsilon, hidden, scales)
        return self._head(torch.from_numpy(hidden)).mul_(torch.from_numpy(scales)[:, None])


def key_value_product(model: LeanModel, index: int) -> Int8Linear | Float32Linear:
    """What makes keys and values, and no queries, of layer `index`'s normalised input."""
    product = model.weights.layers[index].qkv
    width = 2 * model.weights.kv_heads * model.weights.head_dim
    return product.part(torch.arange(product.shape[0] - width, product.shape[0]))


def _propagate(model: LeanModel, x: np.ndarray, first_skipped: int, start: int, cache: LeanKVCache, room: Room) -> None:
    """Keys and values of the layers from index `first_skipped` on, of the state x [rows, hidden] that skips them."""
    tables = (model.weights.cosines, model.weights.sines)
    for index in range(first_skipped, model.num_layers):
        model.norm_for(index, x, room)
        kv = model.key_value_products[index](room.hidden_tensor).numpy()
        kernels.keep_rows(kv, room.scales, start, *tables, cache.keys[index], cache.values[index])
