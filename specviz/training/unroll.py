"""The draft head over whole sequences at once, on the target's features and then on its own outputs.

In use the head drafts several tokens in a row: from the second on, its own output stands for the target's
features, and its KV holds entries of that kind. Training sees the same (EAGLE-3's training-time test, arXiv
2503.01840, section 3.2): in step s every entry's state is the head's output of step s - 1 one entry before,
and it attends to the entries of true features up to s - 1 before it, and to one entry of each step since.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from specviz.engine.draft_head_net import DraftHeadNet


def unrolled(net: DraftHeadNet, features: Tensor, embeddings: Tensor, num_steps: int) -> Iterator[Tensor]:
    """The head's output states [sequences, entries, hidden], step by step; in step s the first s - 1 entries of each
    sequence mean nothing.

    Args:
        features: [sequences, entries, layers, hidden]; entry i is about the target's token i.
        embeddings: [sequences, entries, hidden], of the token after it.
    """
    num_entries = features.shape[1]
    positions = torch.arange(num_entries)
    states = net.fused(features)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    for step in range(num_steps):
        x = net.joined(states, embeddings)
        q, k, v = (part.transpose(1, 2) for part in net.queries_keys_values(x, positions))
        keys.append(k)
        values.append(v)
        attended = _attend(q, keys, values)
        output = net.finished(x, attended.transpose(1, 2).flatten(2))
        yield output
        if step + 1 < num_steps:
            states = functional.pad(output, (0, 0, 1, 0))[:, :-1]


def _attend(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """q: [sequences, heads, entries, head_dim]; keys, values: of each step, [sequences, kv_heads, entries, head_dim]."""
    if len(keys) == 1:
        return functional.scaled_dot_product_attention(q, keys[0], values[0], is_causal=True, enable_gqa=True)
    behind = len(keys) - 1  # how far the last entry of true features is behind the query
    group = q.shape[1] // keys[0].shape[1]
    entries = q.shape[2]
    grouped = q.unflatten(1, (-1, group)) / q.shape[-1] ** 0.5  # [sequences, kv_heads, group, entries, head_dim]
    true_scores = grouped @ keys[0].unsqueeze(2).transpose(-1, -2)
    row, column = torch.arange(entries)[:, None], torch.arange(entries)[None]
    hidden = column > (row - behind).clamp_min(0)  # the first rows mean nothing, and keep one entry to stay finite
    true_scores = true_scores.masked_fill(hidden, float("-inf"))
    own_keys, own_values = (
        [_shifted(part, behind - step).unsqueeze(2) for step, part in enumerate(parts)][1:] for parts in (keys, values)
    )
    own_scores = [(grouped * key).sum(-1, keepdim=True) for key in own_keys]
    probs = torch.cat([true_scores, *own_scores], -1).softmax(-1)
    attended = probs[..., :entries] @ values[0].unsqueeze(2)
    for place, value in enumerate(own_values):
        attended = attended + probs[..., entries + place, None] * value
    return attended.flatten(1, 2)


def _shifted(x: Tensor, by: int) -> Tensor:
    """x[..., i - by, :] at place i, and zeros before."""
    return functional.pad(x, (0, 0, by, 0))[..., : x.shape[-2], :] if by else x
