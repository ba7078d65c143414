"""The slow way to leave early: everything is computed anew for every token, without a cache.

A token that left after e layers has, in every layer behind, the keys and values of its state after e layers. So layer
by layer over the whole text: what a token has as input is its state after min(layer, e) layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from specviz.engine.lean_model import LeanModel

# (token ids, the layer at which each token but the last left) -> states of the last token after layers 1..L, [L, hidden]
Reference = Callable[[Sequence[int], Sequence[int]], Tensor]


def reference_of_llama(module) -> Reference:
    """By the modules of transformers."""

    @torch.no_grad()
    def states(ids: Sequence[int], exits: Sequence[int]) -> Tensor:
        body = module.model
        x = body.embed_tokens(torch.tensor([list(ids)]))
        positions = torch.arange(len(ids))[None]
        rotary = body.rotary_emb(x, position_ids=positions)
        goes_on = torch.tensor([*exits, len(body.layers)])
        last = []
        for index, layer in enumerate(body.layers):
            y = layer(x, attention_mask=causal_mask(len(ids)), position_embeddings=rotary, position_ids=positions)
            x = torch.where((goes_on > index)[None, :, None], y, x)
            last.append(x[0, -1])
        return torch.stack(last)

    return states


def reference_of_lean(model: LeanModel) -> Reference:
    """By the lean model's own layers, all rows at once; in int8 to the last bit."""

    @torch.no_grad()
    def states(ids: Sequence[int], exits: Sequence[int]) -> Tensor:
        cache = model.new_cache()
        cache.reserve(len(ids))
        room = model.make_room(len(ids), cache.keys.shape[2])
        attend = model.attention_in(cache, 0, room)
        x = model.embed(ids)
        goes_on = np.array([*exits, model.num_layers])
        last = []
        for index in range(model.num_layers):
            before = x.copy()
            model.norm_for(index, x, room)
            model.run_layer(index, x, room, attend)
            x[goes_on <= index] = before[goes_on <= index]
            last.append(torch.tensor(x[-1]))
        return torch.stack(last)

    return states


def causal_mask(length: int) -> Tensor:
    return torch.full((1, 1, length, length), -torch.inf).triu(1)


def decode_slowly(
    reference: Reference,
    read_out: Callable[[int, Tensor], Tensor],
    leaves: Callable[[Tensor, int], int],
    prompt_ids: Sequence[int],
    num_new: int,
) -> tuple[list[int], list[int]]:
    """(new ids, the layer that each was said at).

    Args:
        read_out: (layer, states [1, hidden]) -> [1, vocab] logits.
        leaves: (states after layers 1..L, the index of the new token) -> the layer that it leaves at.
    """
    ids, exits = list(prompt_ids), []
    for index in range(num_new):
        num_layers = len(reference(ids[:1], []))
        before = [num_layers] * (len(prompt_ids) - 1) + exits
        states = reference(ids, before)
        layer = leaves(states, index)
        ids.append(int(read_out(layer, states[layer - 1 : layer]).argmax()))
        exits.append(layer)
    return ids[len(prompt_ids) :], exits
