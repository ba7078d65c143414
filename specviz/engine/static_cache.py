"""The KV cache of one run on a GPU: tensors that are written in place, at positions that the device itself holds."""

from __future__ import annotations

import torch
from torch import Tensor

from specviz.engine.cut_length import CutLength

FIRST_CAPACITY = 256  # positions; a multiple of `SPAN`
SPAN = 64  # attention looks at a multiple of so many positions: few shapes, and rows that kernels like


class StaticKVCache(CutLength):
    """Implements `language_model.KVCache`.

    Attributes:
        keys, values: [layers, kv_heads, capacity, head_dim].
        position: [1] int64 on the device, where the newest pass began; the one place that says so for all layers.
    """

    def __init__(
        self,
        num_layers: int,
        kv_heads: int,
        head_dim: int,
        max_positions: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        capacity = min(FIRST_CAPACITY, _whole_spans(max_positions))
        self.keys, self.values = (
            torch.zeros(num_layers, kv_heads, capacity, head_dim, dtype=dtype, device=device) for _ in range(2)
        )
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self._slots = torch.arange(_whole_spans(max_positions), device=device)

    @property
    def num_bytes(self) -> int:
        layers, heads, _, head_dim = self.keys.shape
        return 2 * layers * heads * self.length * head_dim * self.keys.element_size()

    def begin(self, start: int, num_tokens: int) -> tuple[Tensor, Tensor]:
        """Make room for a pass over `num_tokens` from position `start` on.

        Returns:
            Their positions [num_tokens], and which held positions each may attend to [num_tokens, span] bool. Nothing
            is asked of the device: `span` follows from the host's own count.
        """
        end = start + num_tokens
        self._reserve(end)
        self.position.fill_(start)
        positions = self.position + self._slots[:num_tokens]
        return positions, self._slots[: min(_whole_spans(end), self.keys.shape[2])] <= positions[:, None]

    def _reserve(self, length: int) -> None:
        layers, heads, capacity, head_dim = self.keys.shape
        if length <= capacity:
            return
        roomy = (layers, heads, min(_whole_spans(max(length, 2 * capacity)), len(self._slots)), head_dim)
        for name in ("keys", "values"):
            held = getattr(self, name)
            larger = held.new_zeros(roomy)
            larger[:, :, :capacity] = held
            setattr(self, name, larger)


def _whole_spans(length: int) -> int:
    return -(-length // SPAN) * SPAN
