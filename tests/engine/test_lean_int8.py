"""In int8 a token's logits are the same bits alone and in any pass, so that speculation says what plain decoding says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from torch import Tensor

from specviz.drafters import make_drafter
from specviz.engine.layerwise import Onward
from specviz.engine.lean_cache import FIRST_CAPACITY
from specviz.engine.lean_model import LeanModel
from specviz.engine.lean_weights import assemble
from specviz.errors import RunFailed
from tests.engine.lean_models import (
    NUM_READ,
    SHAPES,
    int8_of,
    int8_tensors,
    lean_float32,
    lean_int8,
    one_by_one,
    some_ids,
    tiny_lean_draft,
    tiny_lean_target,
)
from tests.engine.runs import DRAFTING, assert_lossless, finished, new_ids, run_events
from tests.engine.test_sampling_distribution import (
    SMALLEST_P_VALUE,
    chi_square_p_value,
    exact_joint,
    sampled_beginnings,
    settings_of,
)
from tests.tiny_models import build_model, tiny_model

EVERY_LENGTH = range(2, 10)
STARTS = (0, 1, 2, 3, 7, 8, 15, 16, 31, 33, 64, 100, 129, 200, 255, 256, 257, 300)


@cache
def alone(shape: str) -> Tensor:
    """[NUM_READ, vocab] logits of the text that the tests feed, each token in a pass of its own."""
    return one_by_one(lean_int8(shape), some_ids(NUM_READ))


@pytest.mark.parametrize("shape", SHAPES)
def test_int8_stays_near_float32(shape):
    ids, exact = some_ids(60, seed=5), lean_float32(shape)
    logits = exact.forward(ids, exact.new_cache()).logits
    assert (one_by_one(lean_int8(shape), ids) - logits).norm() < 0.1 * logits.norm()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_token_has_the_same_logits_alone_and_in_a_pass_of_any_length(shape):
    model, ids, logits = lean_int8(shape), some_ids(NUM_READ), alone(shape)
    cache = model.new_cache()
    for start in STARTS:
        if start > cache.length:
            model.forward(ids[cache.length : start], cache, num_logits=0)
        for rows in EVERY_LENGTH:
            together = model.forward(ids[start : start + rows], cache).logits
            assert torch.equal(together, logits[start : start + rows]), (start, rows)
            cache.truncate(start)


@pytest.mark.parametrize("rows", EVERY_LENGTH)
def test_so_it_has_where_the_pass_itself_makes_the_cache_grow(rows):
    model, ids = lean_int8("grouped"), some_ids(NUM_READ)
    for start in range(FIRST_CAPACITY - rows + 1, FIRST_CAPACITY + 1):
        cache = model.new_cache()
        model.forward(ids[:start], cache, num_logits=0)
        assert cache.keys.shape[2] == FIRST_CAPACITY
        together = model.forward(ids[start : start + rows], cache).logits
        assert cache.keys.shape[2] > FIRST_CAPACITY
        assert torch.equal(together, alone("grouped")[start : start + rows])


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_rolled_back_leaves_no_trace(shape):
    model, ids = lean_int8(shape), some_ids(NUM_READ)
    cache = model.new_cache()
    for start in range(0, 60, 3):
        model.forward(some_ids(9, seed=start), cache)
        cache.truncate(start + 1)
        model.forward_by_layer(some_ids(4, seed=start), cache, lambda layer, states: Onward.PAUSE, look_after=(1,))
        cache.truncate(start)
        assert torch.equal(model.forward(ids[start : start + 3], cache).logits, alone(shape)[start : start + 3])


@pytest.mark.parametrize("chunk", [1, 5, 32, 33, 100, NUM_READ])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_prompt_leaves_the_same_keys_and_values_in_chunks_of_any_length(shape, chunk):
    model, ids = lean_int8(shape), some_ids(NUM_READ)
    caches = [model.new_cache(), model.new_cache()]
    for own, length in zip(caches, (7, chunk), strict=True):
        for start in range(0, NUM_READ - 1, length):
            model.forward(ids[start : min(start + length, NUM_READ - 1)], own, num_logits=0)
        assert torch.equal(model.forward(ids[-1:], own).logits, alone(shape)[-1:])
    held = slice(NUM_READ)
    assert (caches[0].keys[:, :, held] == caches[1].keys[:, :, held]).all()
    assert (caches[0].values[:, :, held] == caches[1].values[:, :, held]).all()


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_the_number_of_threads_changes_no_bit():
    broad = int8_of(build_model("llama", hidden_size=256, intermediate_size=512, vocab_size=3000))
    ids = some_ids(40)
    with threads(1):
        logits = one_by_one(broad, ids)
    for number in (1, 2, 3):
        with threads(number):
            assert torch.equal(one_by_one(broad, ids[:10]), logits[:10])
            for rows in (2, 5, 9, 40):
                assert torch.equal(broad.forward(ids[:rows], broad.new_cache()).logits, logits[:rows]), (number, rows)


# --- whole runs -------------------------------------------------------------------------------

NUM_PROMPTS, NUM_NEW = 20, 16


@cache
def random_prompts() -> tuple[list[int], ...]:
    """Of one token to some dozens, every other one with a repetition for the lookup."""
    texts = [some_ids(1 + 2 * seed, seed) for seed in range(NUM_PROMPTS)]
    return tuple(ids * 2 if seed % 2 else ids for seed, ids in enumerate(texts))


@cache
def plainly(index: int) -> list[int]:
    return new_ids(run_events(tiny_lean_target(), random_prompts()[index], max_new_tokens=NUM_NEW))


def test_the_references_are_worth_comparing_with():
    texts = [plainly(index) for index in range(NUM_PROMPTS)]
    assert len({tuple(text) for text in texts}) == NUM_PROMPTS, "different prompts are answered differently"
    assert sum(len(set(text)) for text in texts) / NUM_PROMPTS > NUM_NEW / 3, "the text wanders"


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 7, 8, "auto"])
@pytest.mark.parametrize("kind", DRAFTING)
def test_speculation_says_what_plain_decoding_says(kind, k):
    texts = ((ids, plainly(index)) for index, ids in enumerate(random_prompts()))
    assert_lossless(tiny_lean_target(), tiny_lean_draft(), kind, k, texts)


def test_a_copy_of_the_target_has_every_token_accepted():
    target = lean_int8("grouped")
    events = run_events(
        target, [1, 10, 20], draft=target, drafter_kind="draft_model", num_draft_tokens=5, max_new_tokens=300
    )
    counts = finished(events)["counts"]
    assert counts["accepted"] == counts["drafted"]
    assert counts["rounds"] == 300 / 6


# --- sampling ---------------------------------------------------------------------------------


class Rows:
    """What a model says after a context, as the reference of the distribution asks for it."""

    def __init__(self, model: LeanModel) -> None:
        self._model = model

    def logits_after(self, context: Sequence[int]) -> Tensor:
        return self._model.forward(context, self._model.new_cache(), num_logits=1).logits[0]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"temperature": 1.3, "top_k": 3, "top_p": 0.9}], ids=str)
@pytest.mark.parametrize("kind", DRAFTING)
def test_three_tokens_together_have_the_targets_distribution(kind, changes):
    target, draft = (int8_of(build_model("llama", vocab_size=4, seed=seed, initializer_range=0.1)) for seed in (1, 2))
    settings = settings_of(drafter=kind, **changes)
    counts = sampled_beginnings(settings, lambda run: make_drafter(target, draft, run), target=target)
    joint = exact_joint(Rows(target), settings)
    assert max(joint.values()) < 0.5, "a sure thing proves nothing"
    assert chi_square_p_value(counts, joint) > SMALLEST_P_VALUE


# --- what is not a number is never rounded away -----------------------------------------------

BROKEN = (
    "embedding",
    "final_norm",
    "head.scales",
    "layers.0.attention_norm",
    "layers.1.qkv.scales",
    "layers.2.output.scales",
    "layers.2.mlp_norm",
    "layers.0.gate_up.scales",
    "layers.1.down.scales",
)


@pytest.mark.parametrize("name", BROKEN)
def test_one_number_that_is_none_fails_the_run_with_a_sentence(name):
    tensors = int8_tensors(tiny_model())
    tensors[name] = tensors[name].clone()
    tensors[name][5] = torch.nan
    broken = LeanModel(assemble(tensors, tiny_model().config), "broken", None, torch.int8, 1)
    with pytest.raises(RunFailed, match="logits are not numbers"):
        run_events(broken, [3, 5, 7], max_new_tokens=3)  # id 5 is met in the prompt's pass, which makes no logits
