"""Lean models of tiny Llamas, in float32 and int8, for the tests of the fast CPU path."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.int8_weights import quantize, watch_inputs
from specviz.engine.lean_cache import FIRST_CAPACITY
from specviz.engine.lean_model import LeanModel
from specviz.engine.lean_weights import assemble, fuse
from tests.tiny_models import VOCAB_SIZE, build_model, tiny_draft_of, tiny_model

ROOMY = 2 * FIRST_CAPACITY + 60  # positions: a cache grows twice before they are full
NUM_READ = FIRST_CAPACITY + 70

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

# What a Llama's configuration may vary in, on top of the tiny one: hidden 48, 4 heads of 12, 2 of keys and values.
SHAPES: dict[str, dict] = {
    "grouped": {},
    "one kv head, llama3 rope": {"num_key_value_heads": 1, "rope_parameters": LLAMA3_ROPE},
    "ungrouped, tied": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "heads wider than hidden": {"head_dim": 16},
    "narrow heads, odd widths": {"head_dim": 6, "intermediate_size": 65, "vocab_size": VOCAB_SIZE + 1},
    "one layer, linear rope": {
        "num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0},
    },
}


@cache
def module_of(shape: str) -> PreTrainedModel:
    return build_model("llama", max_positions=ROOMY, **SHAPES[shape])


@cache
def lean_float32(shape: str) -> LeanModel:
    return float32_of(module_of(shape))


@cache
def lean_int8(shape: str) -> LeanModel:
    return int8_of(module_of(shape))


@cache
def tiny_lean_target(dtype: torch.dtype = torch.int8) -> LeanModel:
    """The target of the lossless tests on the lean path."""
    return (int8_of if dtype == torch.int8 else float32_of)(tiny_model())


@cache
def tiny_lean_draft() -> LeanModel:
    return float32_of(tiny_draft_of())


def float32_of(module: PreTrainedModel) -> LeanModel:
    return LeanModel(assemble(fuse(module), module.config), "lean", None, torch.float32, 1)


def int8_of(module: PreTrainedModel) -> LeanModel:
    return LeanModel(assemble(int8_tensors(module), module.config), "lean int8", None, torch.int8, 1)


@torch.no_grad()
def int8_tensors(module: PreTrainedModel) -> dict[str, Tensor]:
    tensors = fuse(module)
    texts = [some_ids(60, seed, module.config.vocab_size) for seed in range(100, 105)]
    return quantize(tensors, watch_inputs(assemble(tensors, module.config), texts))


def some_ids(length: int, seed: int = 0, vocab_size: int = VOCAB_SIZE) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, (length,), generator=generator).tolist()


def one_by_one(model: LeanModel, ids: Sequence[int]) -> Tensor:
    """[len(ids), vocab] logits, a pass for each token."""
    cache = model.new_cache()
    return torch.cat([model.forward([token_id], cache).logits for token_id in ids])
