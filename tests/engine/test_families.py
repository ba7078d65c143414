"""Families of models: sliding windows are right, recurrent states are refused by name, exits use the model's own head."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch

from specviz.config import RunSettings
from specviz.engine.hf_model import TransformersModel
from specviz.engine.language_model import ForwardOutput
from specviz.engine.layerwise import LayerStates, Onward
from specviz.engine.loader import ModelPair
from specviz.errors import BadRequest
from specviz.runs import Run
from tests.engine.runs import (
    DRAFTING,
    byte_vocabulary,
    finished,
    generate_ids,
    new_ids,
    rounds,
    run_events,
    tiny_draft,
    tiny_target,
)
from tests.table_model import TableModel, letters_vocabulary, random_table
from tests.tiny_models import (
    FAMILIES,
    NUM_LAYERS,
    SLIDING_FAMILIES,
    SLIDING_WINDOW,
    build_model,
    encoder_decoder_model,
    noisy_copy,
    recurrent_model,
    tiny_model,
)

any_family = pytest.mark.parametrize("family", FAMILIES)
PROMPT = [(11 * i) % 400 + 5 for i in range(20)]


# --- the first report of the kind: one token, cached ------------------------------------------


@any_family
@pytest.mark.parametrize("kind", DRAFTING)
def test_a_one_token_prompt_goes_on_as_plain_decoding_for_long(family, kind):
    # huggingface/transformers #30042, #30413: positions out of step after a cut, from one token on.
    expected = generate_ids(tiny_model(family), [30], 40)
    events = run_events(
        tiny_target(family),
        [30],
        draft=tiny_draft(family),
        drafter_kind=kind,
        num_draft_tokens=5,
        min_ngram=1,
        exit_layer=2,
        max_new_tokens=40,
    )
    assert new_ids(events) == expected


@any_family
def test_a_cut_and_refed_cache_gives_the_logits_of_a_fresh_pass(family):
    target = tiny_target(family)
    cache = target.new_cache()
    target.forward(PROMPT, cache, num_logits=0)
    target.forward([7, 8, 9, 10], cache)
    cache.truncate(len(PROMPT) + 1)
    continued = target.forward([50, 51], cache).logits
    with torch.no_grad():
        whole = tiny_model(family)(torch.tensor([[*PROMPT, 7, 50, 51]]), use_cache=False).logits[0, -2:]
    torch.testing.assert_close(continued, whole, atol=1e-4, rtol=1e-4)


@any_family
def test_only_the_logits_that_are_asked_for_are_given(family):
    target = tiny_target(family)
    shapes = [target.forward([5, 6, 7], target.new_cache(), num_logits=n).logits.shape for n in (0, 1, 3, None)]
    assert [shape[0] for shape in shapes] == [0, 1, 3, 3]
    assert {shape[1] for shape in shapes} == {target.vocab_size}


@any_family
def test_what_a_model_says_of_itself_is_so(family):
    target, module = tiny_target(family), tiny_model(family)
    cache = target.new_cache()
    target.forward([5, 6, 7], cache, num_logits=0)
    assert (cache.length, cache.num_bytes) == (3, 3 * target.kv_bytes_per_position)
    assert target.num_layers == NUM_LAYERS
    assert target.vocab_size == module.config.vocab_size
    assert target.max_positions == 128
    assert target.num_params == sum(parameter.numel() for parameter in module.parameters())
    assert target.dtype == torch.float32


# --- sliding windows --------------------------------------------------------------------------


@cache
def sliding_model(family: str, attention: str):
    return build_model(family, attn_implementation=attention)


SLIDING = [(family, attention) for family in SLIDING_FAMILIES for attention in ("eager", "sdpa")]
SLIDING.remove(("gemma2", "sdpa"))  # which transformers does not have


@pytest.mark.parametrize(("family", "attention"), SLIDING)
@pytest.mark.parametrize("kind", DRAFTING)
def test_a_sliding_window_is_right_after_every_cut(family, attention, kind):
    # huggingface/transformers #46629, ml-explore/mlx-lm #846: crops that fail, masks that do not fit.
    assert len(PROMPT) > 2 * SLIDING_WINDOW
    module = sliding_model(family, attention)
    events = run_events(
        TransformersModel(module, family),
        PROMPT,
        draft=TransformersModel(noisy_copy(module, 0.03), "draft"),
        drafter_kind=kind,
        num_draft_tokens=4,
        min_ngram=1,
        exit_layer=2,
        max_new_tokens=40,
    )
    assert new_ids(events) == generate_ids(module, PROMPT, 40)


@pytest.mark.parametrize("family", SLIDING_FAMILIES)
def test_the_window_matters_in_these_models(family):
    """Otherwise the tests above would say nothing about windows."""
    wide = build_model(family, sliding_window=128)
    assert generate_ids(wide, PROMPT, 20) != generate_ids(tiny_model(family), PROMPT, 20)


# --- refused by name --------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["mamba", "jamba", "qwen3_next"])
def test_a_model_with_a_recurrent_state_is_refused_by_name(family):
    module = recurrent_model(family)
    with pytest.raises(BadRequest, match=rf"my-{family}.*{type(module).__name__}") as refusal:
        TransformersModel(module, f"my-{family}")
    assert "cannot take back" in str(refusal.value)


def test_an_encoder_decoder_is_refused_by_name():
    with pytest.raises(BadRequest, match=r"my-t5.*T5ForConditionalGeneration.*encoder-decoder"):
        TransformersModel(encoder_decoder_model(), "my-t5")


def test_a_model_without_a_head_is_refused_by_name():
    with pytest.raises(BadRequest, match=r"headless.*head"):
        TransformersModel(copy.copy(tiny_model("llama").model), "headless")


# --- early exits ------------------------------------------------------------------------------


@any_family
def test_at_the_last_layer_an_exit_is_the_model_itself(family):
    # TransformerLensOrg/TransformerLens #1076: a norm that was made for another layer.
    target = tiny_target(family)
    whole = target.forward(PROMPT, target.new_cache()).logits
    exit_logits = target.read_out(target.forward_by_layer(PROMPT, target.new_cache()).states)
    torch.testing.assert_close(exit_logits.softmax(-1), whole.softmax(-1), atol=1e-5, rtol=0)
    entropies = [-(p * p.log()).sum(-1) for p in (exit_logits.softmax(-1), whole.softmax(-1))]
    torch.testing.assert_close(*entropies, atol=1e-4, rtol=0)


@any_family
@pytest.mark.parametrize("num_layers", [1, 2])
def test_an_earlier_exit_is_the_model_with_its_later_layers_removed(family, num_layers):
    target = tiny_target(family)
    layers = {"n_layer" if family == "gpt2" else "num_hidden_layers": num_layers}
    if "layer_types" in FAMILIES[family]:
        layers["layer_types"] = FAMILIES[family]["layer_types"][:num_layers]
    shorter = build_model(family, **layers)
    shorter.load_state_dict(tiny_model(family).state_dict(), strict=False)
    with torch.no_grad():
        expected = shorter(torch.tensor([PROMPT]), use_cache=False).logits[0]
    exit_logits = target.read_out(paused_at(num_layers, target, PROMPT, target.new_cache()).states)
    torch.testing.assert_close(exit_logits, expected, atol=1e-4, rtol=1e-4)


@any_family
@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_pass_that_paused_goes_on_as_if_it_had_not(family, num_layers):
    target, cache = tiny_target(family), tiny_target(family).new_cache()
    target.forward(PROMPT, cache, num_logits=0)
    length, fed = cache.length, [7, 3, 9]
    expected = target.forward(fed, cache).logits
    cache.truncate(length)
    ahead = [paused_at(num_layers, target, [token_id], cache).states for token_id in fed]
    assert cache.length == length
    ended = target.forward_by_layer(fed, cache, paused=LayerStates(num_layers, torch.cat(ahead)))
    assert cache.length == length + 3
    torch.testing.assert_close(target.read_out(ended.states), expected, atol=1e-4, rtol=1e-4)
    cache.truncate(length)
    paused_at(num_layers, target, fed, cache)
    cache.truncate(length)
    torch.testing.assert_close(target.forward(fed, cache).logits, expected, atol=1e-4, rtol=1e-4)


@any_family
def test_a_part_of_the_head_says_what_the_whole_head_says(family):
    target, ids = tiny_target(family), torch.tensor([0, 5, 9])
    states = target.forward_by_layer(PROMPT, target.new_cache()).states
    cut = target.cut_read_out(ids)
    assert cut.num_bytes < target.weight_bytes
    torch.testing.assert_close(cut(states), target.read_out(states)[:, ids], atol=1e-4, rtol=1e-4)


@any_family
def test_running_layer_by_layer_changes_nothing_of_the_model(family):
    target, module = tiny_target(family), tiny_model(family)
    config_before, modules_before = module.config.to_dict(), [id(m) for m in module.modules()]
    paused_at(1, target, PROMPT, target.new_cache())
    target.forward_by_layer(PROMPT, target.new_cache(), lambda layer, states: Onward.LEAVE, look_after=(2,))
    assert module.config.to_dict() == config_before
    assert [id(m) for m in module.modules()] == modules_before
    assert target.num_layers == NUM_LAYERS


def paused_at(num_layers, target, token_ids, cache) -> LayerStates:
    return target.forward_by_layer(token_ids, cache, lambda layer, states: Onward.PAUSE, look_after=(num_layers,))


# --- rounding ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DRAFTING)
def test_in_bf16_a_run_is_identical_or_says_where_it_is_not(kind):
    # huggingface/transformers #39421, ml-explore/mlx-lm #1423, vllm-project/vllm #54928.
    module = build_model("llama").to(torch.bfloat16)
    draft = TransformersModel(noisy_copy(module, 0.03), "draft")
    pair = ModelPair(TransformersModel(module, "bf16"), byte_vocabulary(), draft, frozenset())
    for prompt in ("hello world", "def add(a, b):", "one two three one two"):
        settings = RunSettings(drafter=kind, max_new_tokens=60, min_ngram=1, exit_layer=2)
        *_, identity = Run(pair, prompt, settings, raw=True, check=True)
        assert identity["type"] == "identity"
        if not identity["identical"]:
            difference = identity["first_difference"]
            assert difference["dtype"] == "bfloat16"
            assert difference["top2_gap"] < 0.2, "rounding decides near ties only"


class RoundsDifferently(TableModel):
    """A model whose passes over several tokens prefer another of two close tokens, as in bf16."""

    def forward(self, token_ids, cache, *, num_logits=None, feature_layers=()):
        output = super().forward(token_ids, cache, num_logits=num_logits, feature_layers=feature_layers)
        if len(token_ids) == 1:
            return output
        tied = output.logits.clone()
        tied[:, 0] += 2 * (tied[:, 1] - tied[:, 0]).clamp_min(0)
        return ForwardOutput(tied, output.features)


def test_a_difference_is_reported_with_its_place_ids_texts_and_gap():
    table = random_table(4, order=1)
    table[:, 0], table[:, 1] = 5.0, 5.125  # plain decoding says 1, a pass over many says 0
    pair = ModelPair(
        RoundsDifferently(table), letters_vocabulary(["a", "b", "c", "d"]), TableModel(table, num_layers=1), frozenset()
    )
    run = Run(pair, "a", RunSettings(drafter="draft_model", max_new_tokens=6), raw=True, check=True)
    *_, end, identity = run
    assert end["token_ids"][0] == 0
    assert identity["identical"] is False
    assert identity["first_difference"] == {
        "position": 0,
        "ids": [1, 0],
        "texts": ["b", "a"],
        "top2_gap": pytest.approx(0.125),
        "dtype": "float32",
    }


def test_identity_is_claimed_only_where_it_was_checked():
    pair = ModelPair(tiny_target(), byte_vocabulary(), tiny_draft(), frozenset())
    settings = RunSettings(drafter="prompt_lookup", max_new_tokens=8)
    unchecked = list(Run(pair, "hello", settings, raw=True))
    checked = list(Run(pair, "hello", settings, raw=True, check=True))
    sampled = list(Run(pair, "hello", RunSettings(temperature=1.0, max_new_tokens=8), raw=True, check=True))
    assert "identity" not in {event["type"] for event in unchecked}
    assert checked[-1]["identical"] is True
    assert sampled[-1]["identical"] is None
    assert "sampled" in sampled[-1]["why"]
    assert len(rounds(checked)) == len(rounds(unchecked))


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_draft_of_another_dtype_changes_no_greedy_token_and_breaks_no_sampling(dtype, temperature):
    draft = TransformersModel(copy.deepcopy(tiny_draft()._module).to(dtype), "half")
    events = run_events(
        tiny_target(), PROMPT, draft=draft, drafter_kind="draft_model", temperature=temperature, max_new_tokens=24
    )
    assert len(new_ids(events)) == 24
    assert finished(events)["counts"]["accepted"] > 0
    if temperature == 0:
        assert new_ids(events) == generate_ids(tiny_model(), PROMPT, 24)
