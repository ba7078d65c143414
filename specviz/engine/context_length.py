"""How many positions a model holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def context_length(config: PretrainedConfig) -> int | None:
    """Positions that a model can hold with one and the same rotary embedding.

    "dynamic" and "longrope" embeddings change their frequencies, in the shared model, when a pass goes
    beyond the original context: a pass over k + 1 tokens would do so earlier than one over one token,
    and other runs would see it. Such models are used up to the original context.
    """
    longest = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        if parameters.get("rope_type") in ("dynamic", "longrope"):
            original = parameters.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", None
            )
            longest = min(length for length in (longest, original) if length is not None)
    return longest
