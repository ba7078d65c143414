"""The KV cache of one run on a transformers model, cut by absolute length.

Every layer is a plain growing layer, also where the model attends through a sliding window: the
window is in the attention mask, so a cut never meets keys that a ring buffer has overwritten. It
costs memory beyond the window, and makes rolling back exact.
"""

from __future__ import annotations

from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer


class TransformersKVCache:
    """Implements `language_model.KVCache` over `transformers.DynamicCache`."""

    def __init__(self, num_layers: int) -> None:
        self.native = DynamicCache()
        self.native.layers = [DynamicLayer() for _ in range(num_layers)]

    @property
    def length(self) -> int:
        """Positions that all layers hold: the first ones may be ahead, after a pass that was paused."""
        return self.native.layers[-1].get_seq_length()

    @property
    def num_bytes(self) -> int:
        return sum(
            tensor.numel() * tensor.element_size()
            for layer in self.native.layers
            if layer.is_initialized
            for tensor in (layer.keys, layer.values)
        )

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, f"a cache of {self.length} positions is never cut to {length}"
        for layer in self.native.layers:
            layer.crop(length - layer.get_seq_length())
