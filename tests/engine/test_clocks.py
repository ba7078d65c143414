"""Times: the parts of a round sum to the round, the consumer's time is nobody else's, slowness shows where it is.

The clock of these tests moves only when a model or the consumer moves it, so that every sum is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from specviz.config import RunSettings
from specviz.drafters.draft_model import DraftModel
from specviz.engine import clock
from specviz.engine.clock import Laps, RunClock
from specviz.engine.speculative import decode
from tests.engine.runs import finished, rounds
from tests.table_model import TableModel, letters_vocabulary, random_table

VOCABULARY = letters_vocabulary(["a", "b", "c", "d", "e", "f"])
PASS, DRAFT_PASS = 10.0, 1.0  # seconds of a target pass, and of a draft pass


@dataclass
class StoppedTime:
    """Stands still until somebody passes it."""

    now: float = 0.0

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time(monkeypatch) -> StoppedTime:
    stopped = StoppedTime()
    monkeypatch.setattr(clock, "perf_counter", lambda: stopped.now)
    return stopped


class SlowModel(TableModel):
    """A table whose every forward takes its time."""

    def __init__(self, time: StoppedTime, seconds: float, **arguments) -> None:
        super().__init__(random_table(6), **arguments)
        self._time, self._seconds = time, seconds

    def forward(self, token_ids, cache, *, num_logits=None, feature_layers=()):
        self._time.passes(self._seconds)
        return super().forward(token_ids, cache, num_logits=num_logits, feature_layers=feature_layers)


def timed_run(
    time: StoppedTime,
    *,
    target_seconds: float = PASS,
    draft_seconds: float | None = DRAFT_PASS,
    consumer_seconds: float = 0.0,
    live_drafts: bool = False,
):
    target = SlowModel(time, target_seconds)
    drafter = None if draft_seconds is None else DraftModel(SlowModel(time, draft_seconds, num_layers=1))
    settings = RunSettings(drafter="draft_model", num_draft_tokens=3, max_new_tokens=8)
    events = []
    for event in decode(target, drafter, [1, 2, 3], VOCABULARY, settings, live_drafts=live_drafts):
        events.append(event)
        time.passes(consumer_seconds)
    return events


any_consumer = pytest.mark.parametrize("consumer_seconds", [0.0, 100.0])
live_or_not = pytest.mark.parametrize("live_drafts", [False, True])


@any_consumer
@live_or_not
def test_a_round_takes_its_drafts_one_target_pass_and_nothing_of_the_consumers(time, consumer_seconds, live_drafts):
    # ggml-org/llama.cpp #10594, hemingkx/Spec-Bench #29: what was slow could not be seen.
    events = timed_run(time, consumer_seconds=consumer_seconds, live_drafts=live_drafts)
    for event in rounds(events):
        assert event["seconds"] == {"draft": DRAFT_PASS * len(event["draft"]), "verify": PASS, "other": 0.0}


@any_consumer
@live_or_not
def test_the_parts_sum_to_the_rounds_own_wall_time(time, consumer_seconds, live_drafts):
    prefill, *others, _ = timed_run(time, consumer_seconds=consumer_seconds, live_drafts=live_drafts)
    last_end, waited = prefill["t"], consumer_seconds
    for event in others:
        if event["type"] == "round":
            assert sum(event["seconds"].values()) == event["t"] - last_end - waited
            last_end, waited = event["t"], 0.0
        waited += consumer_seconds


@any_consumer
@live_or_not
def test_prefill_rounds_and_waiting_sum_to_the_whole(time, consumer_seconds, live_drafts):
    events = timed_run(time, consumer_seconds=consumer_seconds, live_drafts=live_drafts)
    seconds = finished(events)["seconds"]
    assert seconds["prefill"] == PASS + DRAFT_PASS
    assert seconds["rounds"] == sum(sum(event["seconds"].values()) for event in rounds(events))
    assert seconds["waiting"] == consumer_seconds * (len(events) - 1)
    assert seconds["total"] == seconds["prefill"] + seconds["rounds"] + seconds["waiting"] == finished(events)["t"]


def test_the_prefill_knows_which_model_took_the_time(time):
    assert timed_run(time)[0]["seconds"] == {"target": PASS, "draft": DRAFT_PASS}
    assert timed_run(time, draft_seconds=None)[0]["seconds"] == {"target": PASS, "draft": 0.0}


class AsynchronousModel(SlowModel):
    """A table on a device that works on while Python goes on: its time passes where it is waited for."""

    def __init__(self, time: StoppedTime, seconds: float, **arguments) -> None:
        super().__init__(time, 0.0, **arguments)
        self._each, self._queued = seconds, 0

    def forward(self, *arguments, **named):
        self._queued += 1
        return super().forward(*arguments, **named)

    def synchronize(self) -> None:
        self._time.passes(self._each * self._queued)
        self._queued = 0


def test_each_part_waits_for_what_its_device_has_still_to_do(time):
    target = AsynchronousModel(time, PASS)
    draft = AsynchronousModel(time, DRAFT_PASS, num_layers=1)
    settings = RunSettings(drafter="draft_model", num_draft_tokens=3, max_new_tokens=8)
    prefill, *others, _ = decode(target, DraftModel(draft), [1, 2, 3], VOCABULARY, settings)
    assert prefill["seconds"] == {"target": PASS, "draft": DRAFT_PASS}
    for event in others:
        assert event["seconds"] == {"draft": DRAFT_PASS * len(event["draft"]), "verify": PASS, "other": 0.0}


def test_tokens_per_second_are_committed_tokens_over_the_rounds_own_seconds(time):
    last = finished(timed_run(time, consumer_seconds=100.0))
    assert last["metrics"]["tokens_per_second"] == pytest.approx(8 / last["seconds"]["rounds"])


def test_a_draft_that_costs_more_than_it_brings_is_slower_than_plain_decoding(time):
    plain = finished(timed_run(time, draft_seconds=None))["metrics"]["tokens_per_second"]
    slow = finished(timed_run(time, draft_seconds=5 * PASS))["metrics"]["tokens_per_second"]
    assert plain == pytest.approx(1 / PASS)
    assert slow < plain


@live_or_not
def test_times_never_run_backwards(time, live_drafts):
    times = [event["t"] for event in timed_run(time, consumer_seconds=3.0, live_drafts=live_drafts)]
    assert times == sorted(times)
    assert times[0] == PASS + DRAFT_PASS


def test_the_deadline_counts_all_time_since_the_start(time):
    target = SlowModel(time, PASS)
    settings = RunSettings(drafter="none", max_new_tokens=50, deadline=45.0)
    events = list(decode(target, None, [1, 2], VOCABULARY, settings))
    assert finished(events)["reason"] == "deadline"
    assert len(rounds(events)) == 4  # prefill to 10, rounds to 20, 30, 40, 50


def test_laps_belong_to_who_ended_them_and_leave_the_consumer_out(time):
    laps = Laps(run_clock := RunClock(), "a", "b")
    time.passes(2.0)
    laps.end("a")
    for _ in run_clock.hand_over("event"):
        time.passes(50.0)
    time.passes(3.0)
    laps.end("b")
    assert laps.seconds == {"a": 2.0, "b": 3.0}
    assert (run_clock.waiting, run_clock.busy, run_clock.elapsed) == (50.0, 5.0, 55.0)


def test_on_a_real_clock_the_parts_sum_too():
    events = list(
        decode(TableModel(random_table(6)), None, [1, 2], VOCABULARY, RunSettings(drafter="none", max_new_tokens=50))
    )
    seconds = finished(events)["seconds"]
    assert 0 < seconds["prefill"] + seconds["rounds"] <= seconds["total"]
