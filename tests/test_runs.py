"""`Run`: what cannot be run is refused when it is made, not in the middle."""

from __future__ import annotations

import pytest

from specviz.config import RunSettings
from specviz.engine import identity, speculative
from specviz.engine.kv_memory import KVMemory
from specviz.engine.loader import ModelPair
from specviz.engine.speculative import decode
from specviz.errors import BadRequest
from specviz.runs import Run
from tests.engine.runs import byte_vocabulary, tiny_draft, tiny_target

PAIR = ModelPair(tiny_target(), byte_vocabulary(), tiny_draft(), frozenset([2]))
HISTORY = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize(
    ("prompt", "settings", "more", "words"),
    [
        ("hello " * 500, {}, {}, "shorten it"),
        ("hi", {"suppress_token_ids": (999_999,)}, {}, "999999"),
        ("hi", {"eos_token_ids": (999_999,)}, {}, "999999"),
        ("hi", {"drafter": "early_exit", "exit_layer": 99}, {}, "exit_layer is 99"),
        ("hi", {}, {"system": "a\udcff"}, "system message has the lone surrogate"),
        ("hi", {}, {"history": [{"role": "user", "content": "\udcff"}]}, "earlier turn has the lone surrogate"),
        ("hi", {}, {"system": "be kind", "raw": True}, "chat template"),
        ("hi", {}, {"history": HISTORY, "raw": True}, "chat template"),
        ("", {}, {}, "empty"),
        (None, {}, {}, "no text"),
        (b"x", {}, {}, "no text"),
    ],
)
def test_refused_at_the_door(prompt, settings, more, words):
    with pytest.raises(BadRequest, match=words):
        Run(PAIR, prompt, RunSettings(**settings), **more)


@pytest.mark.parametrize("change", [{"stop": None}, {"stop": ("a\udcff",)}, {"suppress_token_ids": 5}, {"stop": "x"}])
def test_settings_of_the_wrong_kind_are_refused(change):
    with pytest.raises(BadRequest):
        RunSettings(**change)


def test_a_run_is_iterated_once_and_knows_its_result():
    run = Run(PAIR, "hi", RunSettings(max_new_tokens=5), check=True)
    assert run.result.reason is None
    events = list(run)
    assert [event["type"] for event in events][-2:] == ["run_finished", "identity"]
    assert run.result.token_ids == events[-2]["token_ids"]
    assert run.result.identity["identical"] is True
    with pytest.raises(RuntimeError):
        list(run)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.9, "seed": 4}], ids=["greedy", "sampled"])
def test_a_checked_run_is_made_once_more_as_unwatched_as_plain_decoding(settings, monkeypatch):
    made = []

    def watched_decode(*arguments, **named):
        made.append((arguments[1] is not None, arguments[4].trace_detail, named.get("live_drafts", False)))
        yield from decode(*arguments, **named)

    monkeypatch.setattr(speculative, "decode", watched_decode)
    monkeypatch.setattr(identity, "decode", watched_decode)
    run = Run(PAIR, "hi", RunSettings(max_new_tokens=5, **settings), check=True, live_drafts=True, memory=KVMemory())
    list(run)
    assert made == [(True, "full", True), (False, "none", False), (True, "none", False)]
    assert run.result.identity["again_tokens_per_second"] > 0


def test_plain_decoding_is_not_compared_in_speed_with_itself():
    run = Run(PAIR, "hi", RunSettings(drafter="none", max_new_tokens=5), check=True)
    list(run)
    assert run.result.identity["identical"] is True
    assert "again_tokens_per_second" not in run.result.identity


def test_a_stopped_comparison_claims_no_speed():
    run = Run(PAIR, "hi", RunSettings(max_new_tokens=5), check=True)
    for event in run:
        if event["type"] == "run_finished":
            run.cancel()
    assert run.result.identity["identical"] is None
    assert "plain_tokens_per_second" not in run.result.identity
