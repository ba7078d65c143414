"""A run in its thread: every event once, stopping, breaking off, nothing left behind."""

from __future__ import annotations

import json
import threading
import time

import pytest

from specviz.errors import BadRequest
from specviz.ui.live_run import SECONDS_BETWEEN_MESSAGES, UNEXPECTED, LiveRun, RunRegistry
from tests.ui.fake_runs import FakeRun, story, wait_until


def parsed(text: str) -> tuple[dict, list[dict]]:
    header, *lines = text.split("\n")
    return json.loads(header), [json.loads(line) for line in lines]


def start(run: FakeRun) -> LiveRun:
    return LiveRun("r1", lambda notify: run)


def collect(live: LiveRun) -> tuple[list[dict], list[dict]]:
    """All headers and all events of a run."""
    headers, events = [], []
    for text in live.messages():
        header, new = parsed(text)
        assert header["seq"] == len(events)
        headers.append(header)
        events += new
    return headers, events


def test_every_event_comes_once_and_in_order():
    expected = story(30)
    headers, events = collect(start(FakeRun(expected)))
    assert events == expected
    assert [header["done"] for header in headers[:-1]] == [0] * (len(headers) - 1)
    assert headers[-1]["done"] == 1


def test_a_fast_run_is_batched():
    began = time.monotonic()
    headers, _ = collect(start(FakeRun(story(300), delay=0.001)))
    seconds = time.monotonic() - began
    assert len(headers) <= seconds / (SECONDS_BETWEEN_MESSAGES / 2) + 2


def test_what_is_there_is_not_held_back_by_what_comes_later():
    run = FakeRun(story(3), delay=60)
    messages = start(run).messages()
    _, events = parsed(next(messages))
    while len(events) < 2:
        events += parsed(next(messages))[1]
    assert [event["type"] for event in events] == ["run_started", "prefill"]
    messages.close()
    assert run.was_cancelled.is_set()


def test_stop_ends_the_run_with_its_own_last_event_and_keeps_what_it_made():
    run = FakeRun(story(200), delay=0.01)
    live = start(run)
    events, done = [], False
    for text in live.messages():
        header, new = parsed(text)
        events += new
        done = bool(header["done"])
        if len(events) > 10:
            live.cancel()
    assert done
    assert events[-1]["type"] == "run_finished"
    assert events[-1]["reason"] == "cancelled"
    assert sum(event["type"] == "round" for event in events) >= 9
    wait_until(run.was_closed.is_set)


def test_closing_the_page_stops_the_run_and_leaves_no_thread():
    before = threading.active_count()
    runs = [FakeRun(story(500), delay=0.01) for _ in range(5)]
    for run in runs:
        messages = start(run).messages()
        next(messages)
        messages.close()
    for run in runs:
        wait_until(run.was_closed.is_set)
    wait_until(lambda: threading.active_count() <= before)


def test_stop_while_models_are_loaded():
    may_load, run = threading.Event(), FakeRun(story(3))

    def load(notify):
        notify("Loading the model")
        may_load.wait(10)
        return run

    live = LiveRun("r1", load)
    messages = live.messages()
    header, _ = parsed(next(messages))
    assert header["note"] == "Loading the model"
    live.cancel()
    header, events = parsed(next(messages))
    assert (header["done"], events) == (1, [])
    assert "Stopped" in header["error"]
    assert list(messages) == []
    may_load.set()
    wait_until(lambda: live.is_over)
    assert live.events_from(0) == []


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [(BadRequest("k is 99: use less."), "k is 99: use less."), (ZeroDivisionError("secret"), UNEXPECTED)],
)
def test_a_run_that_cannot_begin_says_why_in_one_sentence(problem, sentence):
    def fail(notify):
        raise problem

    headers, events = collect(LiveRun("r1", fail))
    assert events == []
    assert (headers[-1]["error"], headers[-1]["refused"]) == (sentence, "run")


def test_an_error_in_a_run_that_has_begun_is_about_that_run():
    class Broken(FakeRun):
        def __iter__(self):
            yield self.events[0]
            raise BadRequest("The disk is full.")

    headers, events = collect(start(Broken(story(2))))
    assert len(events) == 1 and headers[-1]["error"] == "The disk is full." and "refused" not in headers[-1]


def test_a_run_that_breaks_off_says_so_once():
    class Broken(FakeRun):
        def __iter__(self):
            yield self.events[0]
            yield {"type": "run_failed", "t": 0.1, "error": "The device ran out of memory.", "round": 0}
            raise MemoryError

    headers, events = collect(start(Broken(story(2))))
    assert events[-1]["type"] == "run_failed"
    assert "error" not in headers[-1]


def test_a_session_has_one_run_at_a_time_and_reaches_no_other():
    registry = RunRegistry()
    runs = {name: LiveRun(name, lambda notify: FakeRun([])) for name in ("a1", "a2", "b1")}
    registry.register("a", runs["a1"])
    registry.register("b", runs["b1"])
    registry.register("a", runs["a2"])
    assert runs["a1"]._is_cancelled
    assert registry.find("a1") is None
    registry.cancel("a")
    assert runs["a2"]._is_cancelled
    assert not runs["b1"]._is_cancelled
    registry.forget("b")
    assert runs["b1"]._is_cancelled
    registry.cancel("nobody")


def test_sessions_that_never_say_goodbye_do_not_pile_up():
    registry = RunRegistry()
    for number in range(RunRegistry.MAX_SESSIONS + 20):
        registry.register(f"s{number}", LiveRun(f"r{number}", lambda notify: FakeRun([])))
    assert len(registry._by_session) == RunRegistry.MAX_SESSIONS
    assert registry.find("r0") is None
