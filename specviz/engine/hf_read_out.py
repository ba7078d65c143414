"""A part of the output head of a transformers model, over states that its layers have left."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from specviz.engine.hf_layerwise import LayerSteps

TRIED_STATES = 2


class CutReadOut:
    """Final norm and some rows of the output head.

    Args:
        weight: [cut, hidden]. bias: [cut]. cap: of tanh-capped logits (Gemma 2).
    """

    def __init__(
        self, norm: Callable[[Tensor], Tensor], weight: Tensor, bias: Tensor | None, cap: float | None
    ) -> None:
        self._norm, self._weight, self._bias, self._cap = norm, weight, bias, cap
        self.num_bytes = weight.numel() * weight.element_size()

    @torch.no_grad()
    def __call__(self, states: Tensor) -> Tensor:
        """[rows, hidden] residual states -> [rows, cut] logits."""
        logits = nn.functional.linear(self._norm(states).to(self._weight), self._weight, self._bias)
        return logits if self._cap is None else torch.tanh(logits / self._cap) * self._cap


@torch.no_grad()
def cut_read_out(steps: LayerSteps, vocab_ids: Tensor) -> Callable[[Tensor], Tensor]:
    """`LayerwiseModel.cut_read_out`. What a family does to its logits behind the head is done too where it is a known
    cap; where it is not, or the head's weights are packed, the whole head is computed and cut."""
    states = _some_states(steps)
    expected = steps.read_out(states)[:, vocab_ids].float()
    try:
        cut = _cut_head(steps, states, vocab_ids)
        if torch.allclose(cut(states).float(), expected, rtol=1e-2, atol=1e-3 * float(expected.abs().max())):
            return cut
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):
        pass  # weights that are no plain matrix
    return lambda states: steps.read_out(states)[:, vocab_ids]


def _cut_head(steps: LayerSteps, states: Tensor, vocab_ids: Tensor) -> CutReadOut:
    head = steps.model.get_output_embeddings()
    bias = getattr(head, "bias", None)
    cap = getattr(steps.model.config.get_text_config(decoder=True), "final_logit_softcapping", None)
    weight, bias = head.weight.detach()[vocab_ids], None if bias is None else bias.detach()[vocab_ids]
    return CutReadOut(_final_norm(steps, states), weight, bias, cap)


def _final_norm(steps: LayerSteps, states: Tensor) -> Callable[[Tensor], Tensor]:
    """The module that comes after the layers, where one is found that does what the decoder does there."""
    expected = steps.normalised(states)
    for module in reversed(steps.beside_the_layers):
        if "norm" in type(module).__name__.lower():
            found = module(states[None].to(expected.dtype))[0]
            if found.shape == expected.shape and torch.equal(found, expected):
                return lambda states, norm=module: norm(states[None].to(expected.dtype))[0]
    return steps.normalised


def _some_states(steps: LayerSteps) -> Tensor:
    embedding = steps.model.get_input_embeddings().weight
    generator = torch.Generator().manual_seed(0)
    return torch.randn(TRIED_STATES, embedding.shape[1], generator=generator).to(embedding.device)
