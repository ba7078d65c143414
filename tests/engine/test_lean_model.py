"""The lean forward in float32 is transformers' forward: logits, features and first layers, however a text is fed."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from specviz.engine.hf_model import TransformersModel
from specviz.engine.layerwise import Onward
from specviz.engine.lean_cache import FIRST_CAPACITY
from specviz.engine.lean_loading import quantized
from specviz.errors import RunFailed
from tests.engine.lean_models import (
    NUM_READ,
    ROOMY,
    SHAPES,
    float32_of,
    int8_of,
    lean_float32,
    module_of,
    some_ids,
    tiny_lean_draft,
    tiny_lean_target,
)
from tests.engine.runs import DRAFTING, assert_lossless, run_events
from tests.engine.test_losslessness import prompts, reference
from tests.tiny_models import build_model
from tests.tiny_tokenizers import byte_level_tokenizer

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
PASSES = (
    FIRST_CAPACITY - 20,
    1,
    1,
    2,
    9,
    1,
    3,
    40,
    1,
    8,
)  # the long ones are a prompt, and one that needs a larger cache


@cache
def truth(shape: str) -> tuple[Tensor, tuple[Tensor, ...]]:
    """transformers' logits and hidden states of the text that the tests feed."""
    with torch.no_grad():
        output = module_of(shape)(torch.tensor([some_ids(NUM_READ)]), output_hidden_states=True, use_cache=False)
    return output.logits[0], tuple(states[0] for states in output.hidden_states)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_features_are_those_of_transformers_in_passes_of_every_kind(shape):
    model, ids, (logits, states) = lean_float32(shape), some_ids(NUM_READ), truth(shape)
    assert sum(PASSES) > FIRST_CAPACITY
    layers = tuple(range(model.num_layers + 1))
    cache, start = model.new_cache(), 0
    for rows in PASSES:
        model.forward(some_ids(5, seed=start), cache)  # all of them rejected
        cache.truncate(start)
        output = model.forward(ids[start : start + rows], cache, feature_layers=layers)
        torch.testing.assert_close(output.logits, logits[start : start + rows], **CLOSE)
        assert tuple(sorted(output.features)) == layers
        for layer, features in output.features.items():
            torch.testing.assert_close(features, states[layer][start : start + rows], **CLOSE)
        start += rows
        assert cache.length == start


@pytest.mark.parametrize("num_logits", [0, 1, 3, 7])
def test_only_the_last_logits_that_were_asked_for_are_made(num_logits):
    model = lean_float32("grouped")
    ids = some_ids(7)
    every = model.forward(ids, model.new_cache()).logits
    last = model.forward(ids, model.new_cache(), num_logits=num_logits).logits
    assert last.shape == (num_logits, model.vocab_size)
    torch.testing.assert_close(last, every[7 - num_logits :], **CLOSE)


def test_features_stay_what_they_were_while_the_run_goes_on():
    model = lean_float32("grouped")
    cache, layers = model.new_cache(), tuple(range(model.num_layers + 1))
    output = model.forward(some_ids(4), cache, feature_layers=layers)
    kept = {layer: features.clone() for layer, features in output.features.items()}
    logits = output.logits.clone()
    model.forward(some_ids(4, seed=1), cache, feature_layers=layers)
    assert torch.equal(output.logits, logits)
    assert all(torch.equal(output.features[layer], kept[layer]) for layer in layers)


def test_what_it_says_of_itself_is_what_the_general_path_says():
    lean, general = lean_float32("grouped"), TransformersModel(module_of("grouped"), "general")
    for fact in ("num_layers", "vocab_size", "max_positions", "kv_bytes_per_position", "dtype", "precision", "device"):
        assert getattr(lean, fact) == getattr(general, fact), fact
    for model in (lean, int8_of(module_of("grouped"))):
        cache = model.new_cache()
        model.forward([1, 2, 3], cache, num_logits=0)
        assert cache.num_bytes == 3 * model.kv_bytes_per_position


def test_int8_weighs_less_and_says_what_it_is():
    int8 = tiny_lean_target(torch.int8)
    assert (int8.dtype, int8.precision) == (torch.int8, "int8")
    assert int8.weight_bytes < tiny_lean_target(torch.float32).weight_bytes / 2


def test_the_context_can_be_filled_to_its_last_position_and_no_further():
    model, ids = lean_float32("grouped"), some_ids(ROOMY)
    cache = model.new_cache()
    model.forward(ids[:-1], cache, num_logits=0)
    last = model.forward(ids[-1:], cache).logits
    with torch.no_grad():
        torch.testing.assert_close(last, module_of("grouped")(torch.tensor([ids])).logits[0, -1:], **CLOSE)
    with pytest.raises(AssertionError):
        model.forward([1], cache)


# --- the first layers -------------------------------------------------------------------------


@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_first_layers_are_those_of_transformers(num_layers):
    lean, general = lean_float32("grouped"), TransformersModel(module_of("grouped"), "general")
    ids = some_ids(12)
    states = [
        model.forward_by_layer(ids, model.new_cache(), lambda layer, states: Onward.PAUSE, look_after=(num_layers,))
        for model in (lean, general)
    ]
    assert [ended.layer for ended in states] == [num_layers] * 2
    torch.testing.assert_close(states[0].states, states[1].states, **CLOSE)
    torch.testing.assert_close(lean.read_out(states[0].states), general.read_out(states[1].states), **CLOSE)


# --- whole runs -------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4, 8, "auto"])
@pytest.mark.parametrize("kind", DRAFTING)
def test_speculation_equals_generate(kind, k):
    texts = ((ids, reference("llama")[name]) for name, ids in prompts().items())
    assert_lossless(tiny_lean_target(torch.float32), tiny_lean_draft(), kind, k, texts)


# --- weights that are not numbers -------------------------------------------------------------

BROKEN = {
    "embedding": "model.embed_tokens.weight",
    "query": "model.layers.1.self_attn.q_proj.weight",
    "key": "model.layers.1.self_attn.k_proj.weight",
    "norm": "model.layers.1.post_attention_layernorm.weight",
    "gate": "model.layers.1.mlp.gate_proj.weight",
    "head": "lm_head.weight",
}


def broken_module(place: str, value: float):
    module = build_model("llama")
    with torch.no_grad():
        dict(module.named_parameters())[BROKEN[place]][5] = value  # one row, or one channel of a norm
    return module


@pytest.mark.parametrize("place", BROKEN)
def test_a_float32_weight_that_is_not_a_number_fails_the_run_with_a_sentence(place):
    with pytest.raises(RunFailed, match="logits are not numbers"):
        run_events(float32_of(broken_module(place, torch.nan)), [5, 6, 7], max_new_tokens=3)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [place for place in BROKEN if place != "embedding"])
def test_weights_that_are_not_numbers_are_not_rounded(place, value):
    with pytest.raises(RunFailed, match="not all numbers"):
        quantized(broken_module(place, value), byte_level_tokenizer())
