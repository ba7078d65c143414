"""Weights of a transformers model in 8 or 4 bits, through optimum-quanto."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def quantize_weights(module: PreTrainedModel, precision: str) -> None:
    """Weights only ("int8" or "int4"), in place, in a model that nobody else has seen yet; not the output head's."""
    from optimum.quanto import freeze, qint4, qint8, quantize

    quantize(module, weights={"int8": qint8, "int4": qint4}[precision], exclude="lm_head")
    freeze(module)
