"""The thread governor on a clock of its own: which number it chooses, and when it gives it up."""

from __future__ import annotations

import pytest
import torch

from specviz.engine import threads
from specviz.engine.threads import FIRST_REST, LONGEST_REST, SETTLED, SLOW, TRIED, ThreadGovernor


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
    governor.observe(1, 1.0)
    for rest in (FIRST_REST, 2 * FIRST_REST, 4 * FIRST_REST):
        governor.observe(1, 1.0)  # of a trial one such pass is enough
        assert passes_with_one(governor, 0.02) == rest


def passes_with_one(governor: ThreadGovernor, seconds: float) -> int:
    passes = 0
    while governor.threads == 1:
        governor.observe(1, seconds)
        passes += 1
    return passes


def test_short_troubles_of_a_long_life_do_not_add_up(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.01, 4: 0.02})
    with_one = 0
    for _ in range(50):
        for _ in range(TRIED + SETTLED):
            governor.observe(1, 0.01)
        assert governor.threads == 2
        for _ in range(2):
            governor.observe(1, 0.2)
        with_one += passes_with_one(governor, 0.02)
    assert with_one == 50 * FIRST_REST


def test_one_that_was_loaded_while_another_program_ran_tries_more_threads_later(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.5, 4: 0.5})
    assert passes_with_one(governor, 0.02) == FIRST_REST
    for _ in range(TRIED + 500):
        governor.observe(1, 0.012)
        assert governor.threads > 1


def test_where_more_threads_never_help_they_are_tried_ever_more_seldom(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.022, 4: 0.03})
    tried = passes = 0
    while passes < 2 * LONGEST_REST:
        is_one = governor.threads == 1
        governor.observe(1, 0.02 if is_one else 0.022)
        passes, tried = passes + 1, tried + (not is_one)
    assert tried < 0.01 * passes


def test_where_one_thread_is_no_faster_all_come_back_at_once(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.01, 4: 0.02})
    cold = 0.02 * SLOW * 1.1
    for _ in range(2):
        governor.observe(1, cold)
    for _ in range(TRIED):
        assert governor.threads == 1
        governor.observe(1, cold)
    assert governor.threads == 2
    for _ in range(10):
        governor.observe(1, cold)
        assert governor.threads == 2, "it has learnt what one thread takes now"
    for _ in range(2):
        governor.observe(1, 1.0)
    assert governor.threads == 1, "and still sees when another program is in the way"


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


def test_a_trial_is_compared_with_one_thread_on_the_text_as_it_is_now(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.01, 4: 0.02})
    for _ in range(2):
        governor.observe(1, 1.0)
    for passes in range(FIRST_REST):
        governor.observe(1, 0.02 if passes < TRIED else 0.04)  # the text grows
    for _ in range(TRIED):
        governor.observe(1, 0.03)
    assert governor.threads == 2


def test_false_alarms_make_no_rest_longer(monkeypatch):
    governor, _ = governor_of(monkeypatch, {1: 0.02, 2: 0.01, 4: 0.02})
    slow = 0.02
    for _ in range(6):
        slow *= SLOW * 1.05
        for _ in range(2):
            governor.observe(1, slow)
        assert passes_with_one(governor, slow) == TRIED
    for _ in range(2):
        governor.observe(1, 100.0)
    assert passes_with_one(governor, 0.02) == FIRST_REST
