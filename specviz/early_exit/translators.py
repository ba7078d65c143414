"""Translators: what a state after some layers would have become after the last one, as a cheap affine map a layer.

The tuned lens (Belrose et al. 2023, arXiv 2303.08112) with a map of low rank: for a state h after a layer,
translated(h) = scale * h + expand (reduce h) + rms(h) * bias. The bias grows with the state, so that the map is
the same for states of any size, as the norm that comes after it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specviz.early_exit.exit_head_files import ExitHeadFile, read_exit_heads, shipped_exit_heads
from specviz.engine.layerwise import LayerwiseModel


class TranslatedHeads:
    """See `specviz.early_exit.exit_heads.ExitHeads`.

    Attributes:
        exit_layers: where it pays to look, as their training found.

    Raises:
        BadRequest: the file is of another target.
    """

    kind = "translators"

    def __init__(self, file: ExitHeadFile, target: LayerwiseModel, stored_embedding: Tensor | None = None) -> None:
        """
        Args:
            stored_embedding: the target's before it was rounded to float16, if it was: the fingerprint is of that one.
        """
        embedding = target.embedding if stored_embedding is None else stored_embedding
        file.refuse_other_target(embedding, target.num_layers, target.name)
        device = target.device
        self.name, self.exit_layers = file.facts.name, file.facts.exit_layers
        self.layers = tuple(range(1, target.num_layers))
        self.vocab_ids, self.num_params = file.vocab_ids.to(device), file.num_params
        self._num_layers = target.num_layers
        self._scale, self._reduce, self._expand = (part.to(device) for part in (file.scale, file.reduce, file.expand))
        self._bias = (file.bias / file.facts.hidden**0.5).to(device)  # of the length of a state, not of its rms
        self._read_out, self._read_out_cut = target.read_out, target.cut_read_out(self.vocab_ids)
        self.weight_bytes = 4 * self.num_params + getattr(self._read_out_cut, "num_bytes", 0)

    @torch.no_grad()
    def translated(self, layer: int, states: Tensor) -> Tensor:
        if layer == self._num_layers:
            return states
        index, rows = layer - 1, states.float()
        lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        mapped = torch.nn.functional.linear(torch.nn.functional.linear(rows, self._reduce[index]), self._expand[index])
        return mapped.addcmul_(rows, self._scale[index]).addcmul_(lengths, self._bias[index]).to(states.dtype)

    def cut_logits(self, layer: int, states: Tensor) -> Tensor:
        return self._read_out_cut(self.translated(layer, states)).float()

    def full_logits(self, layer: int, states: Tensor) -> Tensor:
        return self._read_out(self.translated(layer, states))


def open_translators(target: LayerwiseModel, stored_embedding: Tensor | None = None) -> TranslatedHeads | None:
    """The shipped translators that were trained for a target; None if there are none.

    Raises:
        BadRequest: they are damaged.
    """
    folder = shipped_exit_heads(target.embedding if stored_embedding is None else stored_embedding)
    return None if folder is None else TranslatedHeads(read_exit_heads(folder), target, stored_embedding)
