"""The static path is transformers' forward: logits, features and layers, however a text is fed; and it is lossless."""

from __future__ import annotations

import copy

import pytest
import torch

from specviz.engine import static_loading
from specviz.engine.hf_model import TransformersModel
from specviz.engine.layerwise import LayerStates, Onward, require_layerwise
from specviz.engine.lean_weights import rotary_tables
from specviz.engine.static_cache import FIRST_CAPACITY, SPAN
from specviz.engine.static_loading import open_module, says_the_same, static_weights, why_not_static
from specviz.engine.static_model import StaticModel
from tests.engine.lean_models import NUM_READ, ROOMY, SHAPES, module_of, some_ids
from tests.engine.runs import DRAFTING, assert_lossless
from tests.engine.static_models import DEVICES, static_draft, static_of, static_shape, static_target
from tests.engine.test_lean_model import CLOSE, PASSES, truth
from tests.engine.test_losslessness import prompts, reference
from tests.tiny_models import build_model, tiny_draft_of, tiny_model

pytestmark = pytest.mark.parametrize("device", DEVICES)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_features_are_those_of_transformers_in_passes_of_every_kind(shape, device):
    model, ids, (logits, states) = static_shape(shape, device), some_ids(NUM_READ), truth(shape)
    assert sum(PASSES) > FIRST_CAPACITY
    layers = tuple(range(model.num_layers + 1))
    cache, start = model.new_cache(), 0
    for rows in PASSES:
        model.forward(some_ids(5, seed=start), cache)  # all of them rejected
        cache.truncate(start)
        fed = ids[start : start + rows]
        output = model.forward(fed if rows % 2 else torch.tensor(fed, device=device), cache, feature_layers=layers)
        torch.testing.assert_close(output.logits.cpu(), logits[start : start + rows], **CLOSE)
        assert tuple(sorted(output.features)) == layers
        for layer, features in output.features.items():
            torch.testing.assert_close(features.cpu(), states[layer][start : start + rows], **CLOSE)
        start += rows
        assert cache.length == start


@pytest.mark.parametrize("num_logits", [0, 1, 3, 7])
def test_only_the_last_logits_that_were_asked_for_are_made(num_logits, device):
    model, ids = static_shape("grouped", device), some_ids(7)
    every = model.forward(ids, model.new_cache()).logits
    last = model.forward(ids, model.new_cache(), num_logits=num_logits).logits
    assert last.shape == (num_logits, model.vocab_size)
    torch.testing.assert_close(last, every[7 - num_logits :], **CLOSE)


def test_what_it_says_of_itself_is_what_the_general_path_says(device):
    static = static_shape("grouped", device)
    general = TransformersModel(copy.deepcopy(module_of("grouped")).to(device), "general")
    facts = ("num_layers", "vocab_size", "max_positions", "kv_bytes_per_position", "num_params", "dtype", "precision")
    for fact in (*facts, "device"):
        assert getattr(static, fact) == getattr(general, fact), fact
    cache = static.new_cache()
    static.forward([1, 2, 3], cache, num_logits=0)
    assert cache.num_bytes == 3 * static.kv_bytes_per_position


@pytest.mark.parametrize("shape", ["grouped", "ungrouped, tied"])
def test_the_weights_are_in_memory_once(shape, device):
    module = copy.deepcopy(module_of(shape)).to(device)
    with torch.no_grad():
        before = module(torch.tensor([some_ids(9)], device=device)).logits
    weights = static_weights(module)
    attention = module.model.layers[0].self_attn
    assert attention.q_proj.weight.data_ptr() == weights.layers[0].qkv.data_ptr()
    held = {weights.layers[0].qkv.untyped_storage().data_ptr()}
    assert {attention.k_proj.weight.untyped_storage().data_ptr()} == held
    assert (weights.head is weights.embedding) == (shape == "ungrouped, tied")
    with torch.no_grad():
        torch.testing.assert_close(module(torch.tensor([some_ids(9)], device=device)).logits, before)
    assert says_the_same(StaticModel(weights, "static", None), module)


def test_the_context_can_be_filled_to_its_last_position_and_no_further(device):
    model, ids = static_shape("grouped", device), some_ids(ROOMY)
    assert ROOMY % SPAN, "the last span is not a whole one"
    cache = model.new_cache()
    model.forward(ids[:-1], cache, num_logits=0)
    last = model.forward(ids[-1:], cache).logits.cpu()
    with torch.no_grad():
        torch.testing.assert_close(last, module_of("grouped")(torch.tensor([ids])).logits[0, -1:], **CLOSE)
    with pytest.raises(AssertionError):
        model.forward([1], cache)


def test_two_caches_share_nothing(device):
    model = static_shape("grouped", device)
    one, other = model.new_cache(), model.new_cache()
    expected = model.forward(some_ids(9), model.new_cache()).logits
    model.forward(some_ids(5), one, num_logits=0)
    model.forward(some_ids(30, seed=4), other, num_logits=0)
    rest = model.forward(some_ids(9)[5:], one).logits
    torch.testing.assert_close(rest, expected[5:], **CLOSE)


# --- layer by layer ---------------------------------------------------------------------------


def general_of(device: str) -> TransformersModel:
    return TransformersModel(copy.deepcopy(module_of("grouped")).to(device), "general")


@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_first_layers_are_those_of_transformers(num_layers, device):
    models, ids = (static_shape("grouped", device), general_of(device)), some_ids(12)
    require_layerwise(models[0], "a test")
    ended = [
        model.forward_by_layer(ids, model.new_cache(), lambda layer, states: Onward.PAUSE, look_after=(num_layers,))
        for model in models
    ]
    assert [end.layer for end in ended] == [num_layers] * 2
    torch.testing.assert_close(ended[0].states, ended[1].states, **CLOSE)
    read = [model.read_out(end.states) for model, end in zip(models, ended, strict=True)]
    torch.testing.assert_close(*read, **CLOSE)
    some = torch.tensor([3, 8, 21], device=device)
    torch.testing.assert_close(models[0].cut_read_out(some)(ended[0].states), read[0][:, some], **CLOSE)


def test_what_was_paused_goes_on_to_the_same_end(device):
    model, ids = static_shape("grouped", device), some_ids(20)
    whole = model.forward(ids, model.new_cache()).logits
    cache = model.new_cache()
    model.forward(ids[:15], cache, num_logits=0)
    ahead = [
        model.forward_by_layer([token_id], cache, lambda layer, states: Onward.PAUSE, look_after=(2,)).states
        for token_id in ids[15:]
    ]
    assert (cache.length, cache.num_ahead) == (15, 5)
    ended = model.forward_by_layer(ids[15:], cache, paused=LayerStates(2, torch.cat(ahead)))
    torch.testing.assert_close(model.read_out(ended.states), whole[15:], **CLOSE)
    assert (cache.length, cache.num_ahead) == (20, 0)


def test_a_token_that_leaves_early_is_attended_to_as_transformers_has_it(device):
    after = []
    for model in (static_shape("grouped", device), general_of(device)):
        cache = model.new_cache()
        model.forward(some_ids(6), cache, num_logits=0)
        left = model.forward_by_layer([7], cache, lambda layer, states: Onward.LEAVE, look_after=(1,))
        assert (left.layer, cache.length) == (1, 7)
        after.append(model.forward([9, 4], cache).logits)
    torch.testing.assert_close(*after, **CLOSE)


# --- whole runs -------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4, 8, "auto"])
@pytest.mark.parametrize("kind", DRAFTING)
def test_speculation_equals_generate(kind, k, device):
    texts = ((ids, reference("llama")[name]) for name, ids in prompts().items())
    assert_lossless(static_target(device), static_draft(device), kind, k, texts)


@pytest.mark.parametrize("k", [1, 4, "auto"])
def test_a_static_draft_for_a_target_of_transformers_and_the_other_way_round(k, device):
    texts = [(ids, reference("llama")[name]) for name, ids in prompts().items()]
    target, draft = (
        TransformersModel(copy.deepcopy(module).to(device), "general")
        for module in (tiny_model("llama"), tiny_draft_of("llama"))
    )
    assert_lossless(target, static_draft(device), "draft_model", k, texts)
    assert_lossless(static_target(device), draft, "draft_model", k, texts)


# --- which models take it ---------------------------------------------------------------------


def test_llamas_on_a_gpu_take_it_and_nothing_else_does(device, monkeypatch):
    assert isinstance(open_module(copy.deepcopy(tiny_model("llama")), "cpu", None), TransformersModel)
    monkeypatch.setattr(static_loading, "STATIC_ON", (device,))
    opened = open_module(copy.deepcopy(tiny_model("llama")).to(device), "llama", "main")
    assert isinstance(opened, StaticModel)
    assert (opened.name, opened.revision) == ("llama", "main")
    for family in ("qwen2", "gpt2", "gemma2"):
        module = copy.deepcopy(tiny_model(family)).to(device)
        assert family in why_not_static(module)
        assert isinstance(open_module(module, family, None), TransformersModel)


def test_a_llama_that_would_say_something_else_keeps_the_general_path(device, monkeypatch):
    monkeypatch.setattr(static_loading, "STATIC_ON", (device,))
    monkeypatch.setattr(
        static_loading, "rotary_tables", lambda frequencies, *rest: rotary_tables(2 * frequencies, *rest)
    )
    module = copy.deepcopy(tiny_model("llama")).to(device)
    assert isinstance(open_module(module, "llama", None), TransformersModel)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_says_nearly_the_same(dtype, device):
    module = build_model("llama").to(device, dtype)
    assert why_not_static(module) is None
    assert says_the_same(static_of(module, device, dtype), module)


def test_weights_that_are_quantized_or_spread_are_left_alone(device):
    module = build_model("llama")
    module.config.quantization_config = {"quant_method": "any"}
    assert why_not_static(module) == "its weights are quantized"
    module = build_model("llama").to(torch.float64)
    assert why_not_static(module) == "its dtype is torch.float64"
