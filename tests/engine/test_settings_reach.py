"""Every setting reaches the place where it acts: penalties in verification, temperatures at their extremes, k in the draft."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specviz.config import RunSettings
from specviz.engine.loader import ModelPair
from specviz.errors import BadRequest, RunFailed
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
from tests.tiny_models import tiny_model

any_kind = pytest.mark.parametrize("kind", DRAFTING)


def hello_prompt() -> list[int]:
    return byte_vocabulary().encode("Repeat the word hello: hello hello", raw=True)[1]


def speculate(kind: str, prompt: list[int] | None = None, **settings):
    settings = {"num_draft_tokens": 4, "min_ngram": 1, "exit_layer": 2, "max_new_tokens": 24} | settings
    return run_events(tiny_target(), prompt or hello_prompt(), draft=tiny_draft(), drafter_kind=kind, **settings)


# --- penalties and suppression ----------------------------------------------------------------


@any_kind
@pytest.mark.parametrize("penalty", [0.7, 1.0, 1.5])
def test_a_penalty_acts_in_verification_as_in_generate(kind, penalty):
    # vllm-project/vllm #18902: penalties had no effect once drafting was on.
    expected = generate_ids(tiny_model(), hello_prompt(), 24, repetition_penalty=penalty)
    assert new_ids(speculate(kind, repetition_penalty=penalty)) == expected


@any_kind
def test_a_penalty_changes_the_text(kind):
    texts = {tuple(new_ids(speculate(kind, repetition_penalty=penalty))) for penalty in (0.7, 1.0, 1.5)}
    assert len(texts) == 3


@any_kind
def test_all_adjustments_together_equal_generate(kind):
    plain = generate_ids(tiny_model(), hello_prompt(), 24)
    end, unwanted = plain[1], (plain[0], plain[4], plain[7])
    expected = generate_ids(
        tiny_model(),
        hello_prompt(),
        24,
        repetition_penalty=1.2,
        min_new_tokens=6,
        eos_token_id=end,
        suppress_tokens=list(unwanted),
    )
    events = speculate(kind, repetition_penalty=1.2, min_new_tokens=6, eos_token_ids=[end], suppress_token_ids=unwanted)
    assert new_ids(events) == expected
    assert not set(unwanted) & set(expected)


# --- temperatures -----------------------------------------------------------------------------


@any_kind
@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-3, 1.0, 100.0, 1000.0])
def test_no_temperature_breaks_a_run(kind, temperature):
    # karpathy/nanoGPT #738, vllm-project/vllm PR #27077, ggml-org/llama.cpp #5657.
    events = speculate(kind, temperature=temperature, top_p=0.95, trace_detail="full")
    assert len(new_ids(events)) == 24
    assert all(count >= 0 for count in finished(events)["counts"].values())
    for event in rounds(events):
        for token in [*event["draft"], event["extra"]]:
            numbers = [value for value in token.values() if isinstance(value, float)]
            assert all(math.isfinite(number) for number in numbers)


@any_kind
@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-4])
def test_a_temperature_of_nothing_is_greedy(kind, temperature):
    expected = generate_ids(tiny_model(), hello_prompt(), 24)
    assert new_ids(speculate(kind, temperature=temperature)) == expected


@any_kind
def test_top_k_of_one_is_greedy(kind):
    expected = generate_ids(tiny_model(), hello_prompt(), 24)
    assert new_ids(speculate(kind, temperature=1.0, top_k=1)) == expected


@any_kind
def test_the_seed_decides_a_sampled_text(kind):
    texts = [new_ids(speculate(kind, temperature=1.0, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


# --- k ----------------------------------------------------------------------------------------


def tiny_pair() -> ModelPair:
    return ModelPair(tiny_target(), byte_vocabulary(), tiny_draft(), frozenset())


@any_kind
@pytest.mark.parametrize("k", [1, 3, 7])
def test_k_is_the_longest_draft_of_any_round_and_is_recorded(kind, k):
    # huggingface/transformers #40739: the number that the user gave never reached the draft.
    settings = RunSettings(drafter=kind, num_draft_tokens=k, max_new_tokens=30, min_ngram=1, exit_layer=1)
    events = list(Run(tiny_pair(), "one two three one two three one two", settings, raw=True))
    assert max(len(event["draft"]) for event in rounds(events)) == k
    assert events[0]["settings"]["num_draft_tokens"] == k
    assert RunSettings.from_dict(events[0]["settings"]).num_draft_tokens == k


@pytest.mark.parametrize("kind", ["draft_model", "early_exit"])
@pytest.mark.parametrize("k_max", [2, 5])
def test_an_adaptive_k_has_its_maximum(kind, k_max):
    events = speculate(kind, num_draft_tokens="auto", max_draft_tokens=k_max, draft_threshold=0.0)
    assert max(len(event["draft"]) for event in rounds(events)) == k_max


@pytest.mark.parametrize("kind", ["draft_model", "early_exit"])
def test_an_adaptive_draft_goes_on_exactly_while_it_will_probably_stand(kind):
    threshold = 0.06  # the tiny models are spread over 420 tokens
    events = speculate(
        kind, num_draft_tokens="auto", max_draft_tokens=8, draft_threshold=threshold, trace_detail="full"
    )
    lengths = set()
    for event in rounds(events):
        standing = np.cumprod([token["draft_top"][0][2] for token in event["draft"]])
        assert (standing[:-1] >= threshold).all()
        if event["draft_stop"] == "confidence":
            assert standing[-1] < threshold
        lengths.add(len(event["draft"]))
    assert "confidence" in {event["draft_stop"] for event in rounds(events)}
    assert len(lengths - {0}) > 1


def test_a_threshold_of_one_drafts_one_token_a_round_and_still_gives_the_text():
    events = speculate("draft_model", num_draft_tokens="auto", draft_threshold=1.0)
    assert {len(event["draft"]) for event in rounds(events)} <= {0, 1}
    assert finished(events)["counts"]["drafted"] > 0
    assert new_ids(events) == generate_ids(tiny_model(), hello_prompt(), 24)


def test_the_exit_layer_reaches_the_drafter():
    target = tiny_target()
    for exit_layer in (1, 2):
        settings = RunSettings(drafter="early_exit", exit_layer=exit_layer, max_new_tokens=4)
        run = Run(tiny_pair(), "hello", settings, raw=True)
        events = list(run)
        assert events[0]["drafter"]["exit_layer"] == exit_layer
        assert {event["cache"]["shared_layers"] for event in rounds(events)} == {exit_layer}
    assert target.num_layers == 3


@pytest.mark.parametrize("exit_layer", [3, 100])
def test_an_exit_layer_that_the_target_lacks_is_refused_with_the_choices(exit_layer):
    with pytest.raises(BadRequest, match=rf"{exit_layer}.*3 layers"):
        speculate("early_exit", exit_layer=exit_layer)


def test_a_draft_model_that_is_not_there_is_asked_for():
    with pytest.raises(BadRequest, match="draft"):
        run_events(tiny_target(), [1, 2], drafter_kind="draft_model", draft=None)


def test_early_exit_needs_a_model_that_has_layers():
    class Opaque:
        """A target that is only a `LanguageModel`."""

        def __init__(self, model: TableModel) -> None:
            for name in (
                "name",
                "vocab_size",
                "max_positions",
                "num_layers",
                "device",
                "dtype",
                "new_cache",
                "forward",
            ):
                setattr(self, name, getattr(model, name))

    with pytest.raises(BadRequest, match="early_exit"):
        run_events(Opaque(TableModel(random_table(4))), [1], drafter_kind="early_exit")


# --- what a model must not say ----------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_fail_the_run_in_a_sentence(temperature):
    target = TableModel(random_table(4) * float("nan"), name="broken")
    with pytest.raises(RunFailed, match=r"numbers|NaN|finite"):
        run_events(
            target,
            [1, 2],
            vocabulary=letters_vocabulary(["a", "b", "c", "d"]),
            temperature=temperature,
            max_new_tokens=3,
        )
