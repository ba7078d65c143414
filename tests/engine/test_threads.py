"""The thread governor on a clock of its own: which number it chooses, and when it gives it up."""

from __future__ import annotations

import pytest
import torch

from specviz.engine import threads
from specviz.engine.threads import FIRST_REST, SLOW, ThreadGovernor


class Clock:
    """A pass takes as long as `seconds` says for torch's number of threads."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self._seconds, self.now, self.tried = seconds, 0.0, set()

    def one_token_pass(self) -> None:
        self.tried.add(torch.get_num_threads())
        self.now += self._seconds[torch.get_num_threads()]


@pytest.fixture(autouse=True)
def four_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def governor_of(monkeypatch, seconds: dict[int, float]) -> tuple[ThreadGovernor, Clock]:
    clock = Clock(seconds)
    monkeypatch.setattr(threads, "perf_counter", lambda: clock.now)
    return ThreadGovernor(clock.one_token_pass), clock


@pytest.mark.parametrize("fastest", [1, 2, 4])
def test_the_fastest_number_is_chosen(monkeypatch, fastest):
    governor, clock = governor_of(monkeypatch, {1: 0.03, 2: 0.03, 4: 0.03} | {fastest: 0.02})
    assert governor.threads == fastest
    assert clock.tried == {1, 2, 4}
    governor.prepare()
    assert torch.get_num_threads() == fastest


def test_a_number_that_the_user_names_stays_and_nothing_is_tried(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    governor, clock = governor_of(monkeypatch, {})
    assert governor.threads == 4
    assert clock.tried == set()
    governor.observe(1, 1000.0)
    governor.observe(1, 1000.0)
    assert governor.threads == 4


def test_a_busy_machine_is_not_timed_for_long(monkeypatch):
    governor, clock = governor_of(monkeypatch, {1: 0.02, 2: 1.0, 4: 1.0})
    assert governor.threads == 1
    assert clock.now < 4


def test_two_slow_passes_in_a_row_and_it_is_one_thread_for_a_while(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.01, 4: 0.02})
    slow, fine = 0.02 * SLOW * 1.1, 0.01
    for seconds in (slow, fine, slow):
        governor.observe(1, seconds)
        assert governor.threads == 2
    governor.observe(1, slow)
    for _ in range(FIRST_REST):
        assert governor.threads == 1
        governor.observe(1, fine)
    assert governor.threads == 2


def test_the_rest_grows_while_the_machine_stays_busy(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.01, 4: 0.02})
    for rest in (FIRST_REST, 2 * FIRST_REST):
        governor.observe(1, 1.0)
        governor.observe(1, 1.0)
        passes = 0
        while governor.threads == 1:
            governor.observe(1, 0.01)
            passes += 1
        assert passes == rest


def test_long_passes_say_nothing(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.01, 4: 0.02})
    for _ in range(3):
        governor.observe(500, 5.0)
    assert governor.threads == 2


def test_a_pass_over_more_tokens_may_take_longer(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.01, 4: 0.02})
    for _ in range(3):
        governor.observe(5, 0.02 * SLOW * 1.3)
    assert governor.threads == 2
    for _ in range(2):
        governor.observe(5, 0.02 * SLOW * 1.5)
    assert governor.threads == 1
