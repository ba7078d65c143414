"""Where a run ends: end tokens inside a block, the length, the contexts of both models."""

from __future__ import annotations

from functools import cache

import pytest

from specviz.engine.hf_model import TransformersModel
from specviz.errors import BadRequest
from tests.engine.runs import (
    DRAFTING,
    byte_vocabulary,
    finished,
    generate_ids,
    new_ids,
    rounds,
    run_events,
    statuses,
    tiny_draft,
    tiny_target,
)
from tests.tiny_models import build_model, tiny_model

PROMPT = [30, 31, 32, 30, 31]
any_kind = pytest.mark.parametrize("kind", DRAFTING)


@cache
def plain_ids() -> list[int]:
    return generate_ids(tiny_model(), PROMPT, 24)


def speculate(kind: str, prompt=PROMPT, draft=None, **settings):
    settings = {"num_draft_tokens": 8, "min_ngram": 1, "exit_layer": 2, "max_new_tokens": 24} | settings
    return run_events(tiny_target(), prompt, draft=draft or tiny_draft(), drafter_kind=kind, **settings)


# --- end tokens -------------------------------------------------------------------------------


def first_occurrences() -> list[int]:
    """Indices of plain text where a token comes for the first time: taken as end token, the text ends there."""
    ids = plain_ids()
    return [index for index in range(12) if ids[index] not in ids[:index]]


@pytest.mark.parametrize("index", range(10))
def test_an_end_token_accepted_inside_a_block_ends_the_run_there(index):
    # huggingface/transformers #47912: the end was seen only as the last token of a block.
    end = plain_ids()[first_occurrences()[index % len(first_occurrences())]]
    where = plain_ids().index(end)
    events = speculate("draft_model", draft=tiny_target(), eos_token_ids=[end])
    assert new_ids(events) == plain_ids()[: where + 1]
    assert finished(events)["reason"] == "eos"
    last = rounds(events)[-1]
    assert sum(len(event["committed"]) for event in rounds(events)) == where + 1
    assert last["cache"]["target"]["after"] == len(PROMPT) + where
    # What a self-draft proposes ends with the end token, as an accepted token or the bonus.
    assert set(statuses(last)) <= {"accepted", "cut"}


@any_kind
@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_end_token_ends_the_run_as_in_generate(kind, k):
    for end in {plain_ids()[i] for i in first_occurrences()}:
        expected = generate_ids(tiny_model(), PROMPT, 24, eos_token_id=end)
        events = speculate(kind, num_draft_tokens=k, eos_token_ids=[end])
        assert new_ids(events) == expected


@any_kind
def test_the_first_of_several_end_tokens_ends_the_run(kind):
    early, late = (plain_ids()[first_occurrences()[i]] for i in (2, 5))
    events = speculate(kind, eos_token_ids=[late, early])
    assert new_ids(events) == generate_ids(tiny_model(), PROMPT, 24, eos_token_id=[late, early])
    assert new_ids(events)[-1] == early


def test_what_a_lookup_proposes_after_the_end_token_is_cut():
    # The prompt shows what follows the end token, so the lookup goes on past it if it is let.
    ids = plain_ids()
    end = ids[2]
    assert end not in ids[:2]
    prompt = [*PROMPT, *ids[:8], *PROMPT]
    plain = generate_ids(tiny_model(), prompt, 24, eos_token_id=end)
    events = speculate("prompt_lookup", prompt=prompt, eos_token_ids=[end])
    assert new_ids(events) == plain


@any_kind
def test_the_minimum_length_holds_the_end_token_back(kind):
    end = plain_ids()[first_occurrences()[1]]
    settings = {"min_new_tokens": 9, "eos_token_ids": [end]}
    expected = generate_ids(tiny_model(), PROMPT, 24, eos_token_id=end, min_new_tokens=9)
    events = speculate(kind, **settings)
    assert new_ids(events) == expected
    assert len(expected) >= 9


# --- stop strings -----------------------------------------------------------------------------


@any_kind
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_stop_string_across_tokens_and_rounds_ends_the_run(kind, length):
    vocabulary = byte_vocabulary()
    whole = finished(speculate("none"))["text"]
    start = next(i for i in range(4, len(whole) - length) if "\ufffd" not in whole[i : i + length])
    stop = whole[start : start + length]
    events = speculate(kind, stop=(stop,))
    plain = speculate("none", stop=(stop,))
    assert new_ids(events) == new_ids(plain)
    last = finished(events)
    assert last["reason"] == "stop"
    assert last["text"] == whole[: len(last["text"])]
    assert last["output_text"] == whole[: whole.index(stop)]
    assert stop not in vocabulary.decode(new_ids(events)[:-1])


def test_a_stop_string_in_the_prompt_does_not_count():
    prompt = byte_vocabulary().encode("STOP here STOP", raw=True)[1]
    events = run_events(tiny_target(), prompt, stop=("STOP",), max_new_tokens=6)
    assert finished(events)["reason"] == "length"


# --- length -----------------------------------------------------------------------------------


@any_kind
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("max_new_tokens", [1, 2, 3, 4, 9])
def test_the_length_is_exact(kind, k, max_new_tokens):
    # huggingface/transformers #46993, #47195: prompt lookup went past a small limit.
    prompt = byte_vocabulary().encode("one two three one two three one two", raw=True)[1]
    events = speculate(kind, prompt=prompt, num_draft_tokens=k, max_new_tokens=max_new_tokens)
    assert new_ids(events) == generate_ids(tiny_model(), prompt, max_new_tokens)
    assert finished(events)["reason"] == "length"


def test_a_perfect_draft_is_not_drafted_beyond_the_length():
    events = speculate("draft_model", draft=tiny_target(), max_new_tokens=11)
    assert [len(event["draft"]) for event in rounds(events)] == [8, 1]
    assert rounds(events)[-1]["draft_stop"] == "budget"


# --- contexts ---------------------------------------------------------------------------------


@cache
def short_context(family: str = "llama", max_positions: int = 64) -> TransformersModel:
    return TransformersModel(build_model(family, max_positions=max_positions), f"{max_positions} positions")


LONG_PROMPT = [(7 * i) % 400 + 5 for i in range(58)]


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
@any_kind
def test_the_targets_context_is_filled_to_the_last_position_and_no_further(kind, family):
    # turboderp-org/exllamav2 #274: the draft went on past the end.
    target = short_context(family)
    plain = run_events(target, LONG_PROMPT, max_new_tokens=50)
    events = run_events(
        target, LONG_PROMPT, draft=target, drafter_kind=kind, num_draft_tokens=8, min_ngram=1, max_new_tokens=50
    )
    assert len(LONG_PROMPT) + len(new_ids(events)) == 64
    assert finished(events)["reason"] == finished(plain)["reason"] == "context"
    assert new_ids(events) == new_ids(plain)
    for event in rounds(events):
        for cache_use in (event["cache"]["target"], event["cache"]["draft"]):
            assert cache_use is None or cache_use["peak"] <= 64


@pytest.mark.parametrize("room", [1, 2, 3])
@any_kind
def test_a_prompt_just_under_the_context_gets_the_few_tokens_that_fit(kind, room):
    prompt = [*LONG_PROMPT, *LONG_PROMPT][: 64 - room]
    events = run_events(short_context(), prompt, draft=short_context(), drafter_kind=kind, max_new_tokens=50)
    assert len(new_ids(events)) == room


@pytest.mark.parametrize("length", [64, 65, 100])
def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(length):
    with pytest.raises(BadRequest, match=rf"{length}.*64"):
        run_events(short_context(), [5] * length, max_new_tokens=4)


@pytest.mark.parametrize("draft_family", ["llama", "gpt2"])
@pytest.mark.parametrize("draft_positions", [4, 20, 60, 64, 70])
def test_a_draft_whose_own_context_is_full_only_stops_drafting(draft_positions, draft_family):
    target, draft = short_context("llama", 96), short_context(draft_family, draft_positions)
    plain = run_events(target, LONG_PROMPT, max_new_tokens=30)
    events = run_events(
        target, LONG_PROMPT, draft=draft, drafter_kind="draft_model", num_draft_tokens=4, max_new_tokens=30
    )
    assert new_ids(events) == new_ids(plain)
    assert finished(events)["reason"] == "length"
    late = [event for event in rounds(events) if event["cache"]["target"]["before"] + 1 > draft_positions]
    assert late
    for event in late:
        assert event["draft"] == []
        assert event["draft_stop"] in ("context", "budget")
    for event in rounds(events):
        assert event["cache"]["draft"]["peak"] <= draft_positions
