"""Static models of tiny Llamas, for the tests of the GPU path: on a GPU where there is one, and on the CPU everywhere."""

from __future__ import annotations

import copy
from functools import cache

import torch
from transformers import PreTrainedModel

from specviz.engine.static_loading import static_weights
from specviz.engine.static_model import StaticModel
from tests.engine.lean_models import module_of
from tests.tiny_models import tiny_draft_of, tiny_model

DEVICES = ("cpu", *(("cuda",) if torch.cuda.is_available() else ()))


def static_of(module: PreTrainedModel, device: str = "cpu", dtype: torch.dtype = torch.float32) -> StaticModel:
    """Of a copy, whose memory it shares."""
    return StaticModel(static_weights(copy.deepcopy(module).to(device, dtype)), f"static on {device}", None)


@cache
def static_shape(shape: str, device: str) -> StaticModel:
    return static_of(module_of(shape), device)


@cache
def static_target(device: str = "cpu") -> StaticModel:
    return static_of(tiny_model("llama"), device)


@cache
def static_draft(device: str = "cpu") -> StaticModel:
    return static_of(tiny_draft_of("llama"), device)
