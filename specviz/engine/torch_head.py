"""The draft head on any device, in any dtype: `DraftHeadNet` with a small cache of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specviz.engine.context_tokens import ContextTokens
from specviz.engine.cut_vocabulary import CutVocabulary
from specviz.engine.draft_head import HeadOutput
from specviz.engine.draft_head_net import DraftHeadNet
from specviz.engine.language_model import ids_on

FIRST_CAPACITY = 256  # entries


class TorchHeadCache:
    """Implements `language_model.KVCache` for one layer: written in place, cut by its length.

    Attributes:
        keys, values: [kv_heads, capacity, head_dim].
        context: the tokens outside the cut vocabulary that stand in its text.
    """

    def __init__(self, net: DraftHeadNet, context: ContextTokens) -> None:
        shape = net.shape
        self.keys, self.values = (
            net.qkv.new_zeros(shape.kv_heads, FIRST_CAPACITY, shape.head_dim, requires_grad=False) for _ in range(2)
        )
        self.length = 0
        self.context = context

    @property
    def num_bytes(self) -> int:
        kv_heads, _, head_dim = self.keys.shape
        return 2 * kv_heads * self.length * head_dim * self.keys.element_size()

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, f"a cache of {self.length} entries is never cut to {length}"
        self.length = length
        self.context.truncate(length)

    def append(self, keys: Tensor, values: Tensor, next_ids: Sequence[int] | Tensor) -> None:
        """Add entries, each [rows, kv_heads, head_dim], with the tokens that they were made of."""
        self.context.read(next_ids, self.length)
        end = self.length + len(keys)
        if end > self.keys.shape[1]:
            more = max(end, 2 * self.keys.shape[1]) - self.keys.shape[1]
            self.keys, self.values = (functional.pad(held, (0, 0, 0, more)) for held in (self.keys, self.values))
        self.keys[:, self.length : end] = keys.transpose(0, 1)
        self.values[:, self.length : end] = values.transpose(0, 1)
        self.length = end


class TorchHead:
    """See `specviz.engine.draft_head.DraftHeadModel`.

    Args:
        net: on its device, in its dtype; unchanged from now on.
        head: [n, hidden], the rows of the output head over `cut`.
        embedding: [vocab, hidden], the target's.
        name, max_positions, num_params, cut_facts: see there.
    """

    reads_ahead = 1

    def __init__(
        self,
        net: DraftHeadNet,
        head: Tensor,
        embedding: Tensor,
        cut: CutVocabulary,
        *,
        name: str,
        max_positions: int,
        num_params: int,
        cut_facts: dict[str, Any],
    ) -> None:
        self._net, self._head, self._embedding = net.eval().requires_grad_(False), head, embedding.detach()
        self._cut = cut
        self.name, self.max_positions, self.num_params, self.cut_facts = name, max_positions, num_params, cut_facts
        self.feature_layers = net.shape.feature_layers
        self.vocab_size = cut.size
        self.dtype, self.device = net.qkv.dtype, net.qkv.device
        self.drafts_in_chains = self.device.type == "cuda"  # elsewhere nothing is gained (see `drafters/chain.py`)
        self.precision = str(self.dtype).removeprefix("torch.")
        held = [*net.parameters(), head]
        self.weight_bytes = sum(tensor.numel() * tensor.element_size() for tensor in held)
        self.kv_bytes_per_position = 2 * net.shape.kv_width * net.qkv.element_size()

    def new_cache(self) -> TorchHeadCache:
        return TorchHeadCache(self._net, self._cut.new_context())

    @torch.no_grad()
    def read(
        self, features: Tensor, next_ids: Sequence[int], cache: TorchHeadCache, *, wants_output: bool = True
    ) -> HeadOutput | None:
        return self._extend(self._net.fused(features.to(self.device, self.dtype)), next_ids, cache, wants_output)

    @torch.no_grad()
    def go_on(self, state: Tensor, next_id: int | Tensor, cache: TorchHeadCache) -> HeadOutput:
        next_ids = next_id if isinstance(next_id, Tensor) else [next_id]
        return self._extend(state, next_ids, cache, wants_output=True)

    def _extend(
        self, states: Tensor, next_ids: Sequence[int] | Tensor, cache: TorchHeadCache, wants_output: bool
    ) -> HeadOutput | None:
        net, start, rows = self._net, cache.length, len(next_ids)
        assert start + rows <= self.max_positions, f"{self.name} has no position {start + rows - 1}"
        ids = ids_on(next_ids, self._embedding.device)
        embeddings = functional.embedding(ids, self._embedding).to(self.device, self.dtype)
        x = net.joined(states, embeddings)
        queries, keys, values = net.queries_keys_values(x, torch.arange(start, start + rows, device=self.device))
        cache.append(keys, values, next_ids)
        if not wants_output:
            return None
        attended = functional.scaled_dot_product_attention(
            queries[-1:].transpose(0, 1)[None],
            cache.keys[None, :, : cache.length],
            cache.values[None, :, : cache.length],
            enable_gqa=True,
        )
        state = net.finished(x[-1:], attended[0].transpose(0, 1).flatten(1))
        head_input = net.head_input(state)
        logits = self._cut.widen(functional.linear(head_input, self._head))
        cache.context.say(head_input, cache.length - 1, logits)
        return HeadOutput(logits, state)
