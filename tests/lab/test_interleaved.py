"""Asking many workers in turn: the order, the warm-up, and that one which fails takes nobody with it."""

from __future__ import annotations

from collections import Counter

import pytest

from specviz.lab.interleaved import ask_interleaved, rotated
from tests.lab.fakes import FakeWorker, failing

NAMES = ("a", "b", "c")


def fakes(log, **answers):
    workers = {name: FakeWorker(name, answers.get(name, lambda request: dict(request)), log) for name in NAMES}
    return workers, {name: lambda name=name: workers[name] for name in NAMES}


def requests(num_prompts, **fields):
    return {name: [{"prompt": index, **fields} for index in range(num_prompts)] for name in NAMES}


def test_every_prompt_goes_to_every_worker_once_in_an_order_that_rotates():
    log = []
    workers, starters = fakes(log)
    answers = ask_interleaved(starters, requests(4), repeat=2)
    asked = log[len(NAMES) :]
    assert ["".join(name for name, _ in asked[i : i + 3]) for i in range(0, len(asked), 3)] == [
        *("abc", "bca", "cab", "abc"),
        *("bca", "cab", "abc", "bca"),
    ]
    assert set(Counter((name, request["prompt"]) for name, request in asked).values()) == {2}
    assert answers.by_worker["b"] == [[{"prompt": index}] * 2 for index in range(4)]
    assert answers.facts["a"] == {"threads": 1} and answers.reasons == {}
    assert all(worker.is_closed for worker in workers.values())


def test_the_warm_up_is_short_and_not_recorded():
    log = []
    _, starters = fakes(log)
    answers = ask_interleaved(starters, requests(1, max_new_tokens=128))
    assert [request["max_new_tokens"] for _, request in log] == [16] * 3 + [128] * 3
    assert answers.by_worker["a"] == [[{"prompt": 0, "max_new_tokens": 128}]]


def test_one_that_fails_is_null_with_its_reason_and_the_others_go_on():
    calls = Counter()

    def breaks_on_the_second_prompt(request):
        calls["b"] += 1
        return failing("It broke.")() if calls["b"] == 3 else {}

    workers, starters = fakes([], b=breaks_on_the_second_prompt)
    starters["c"] = failing("No such library.")
    answers = ask_interleaved(starters, requests(4))
    assert set(answers.by_worker) == {"a"} and len(answers.by_worker["a"]) == 4
    assert answers.reasons == {"b": "On prompt 2: It broke.", "c": "No such library."}
    assert workers["b"].is_closed


def test_one_that_fails_to_warm_up_is_closed_at_once():
    workers, starters = fakes([], a=failing("No memory."))
    seen = []
    workers["b"]._answer = lambda request: seen.append(workers["a"].is_closed) or {}
    assert ask_interleaved(starters, requests(1)).reasons == {"a": "No memory."}
    assert all(seen)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_happens_nobody_is_left_behind(error):
    def interrupt(request):
        raise error

    workers, starters = fakes([], c=interrupt)
    with pytest.raises(error):
        ask_interleaved(starters, requests(2))
    assert all(worker.is_closed for worker in workers.values())


def test_nobody_to_ask():
    assert ask_interleaved({}, {}).by_worker == {}
    assert rotated([], 3) == []
