"""Feeding a long text into a cache, in chunks, so that it can be interrupted and memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specviz.engine.language_model import KVCache, LanguageModel

CHUNK_TOKENS = 512


def feed_in_chunks(
    model: LanguageModel,
    token_ids: Sequence[int],
    cache: KVCache,
    should_stop: Callable[[], bool],
    feature_layers: tuple[int, ...] = (),
) -> dict[int, Tensor]:
    """Extend the cache by `token_ids`, or by as many as come before `should_stop()`; no logits.

    Returns:
        layer -> [num fed, hidden] for the layers asked for.
    """
    features: dict[int, list[Tensor]] = {layer: [] for layer in feature_layers}
    for start in range(0, len(token_ids), CHUNK_TOKENS):
        if should_stop():
            break
        chunk = token_ids[start : start + CHUNK_TOKENS]
        output = model.forward(chunk, cache, num_logits=0, feature_layers=feature_layers)
        for layer, states in output.features.items():
            features[layer].append(states)
    return {layer: torch.cat(states) for layer, states in features.items() if states}
