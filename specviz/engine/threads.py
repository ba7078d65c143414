"""How many threads torch gives a small model's matrix products: measured, and measured again when it stops being true.

A product is over when its last thread is. On a machine where another program takes a core, a second thread
makes each of the hundred products of a pass wait for the scheduler: one token may take a second instead of
ten milliseconds. So the number is chosen by timing at the start, given up as soon as passes get slow, and tried again
after a rest, which grows while the trouble lasts and is short again when it is over. A pass may also be slow because
others have emptied the caches, or because the text has grown: then one thread is no faster, which a few passes show,
and all threads come back at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

TIMED_PASSES, MOST_SECONDS = 5, 0.3
SLOW = 1.3  # times what one thread would take: then the other threads are in the way
HOPELESS = 2.0  # the same, after which a trial of more threads is not gone on with
MOST_TOKENS, MORE_PER_TOKEN = 9, 0.1  # longer passes are not judged; what each further token adds to a pass
FIRST_REST, LONGEST_REST = 16, 4096  # passes with one thread before more are tried again
TRIED = 5  # passes after which a number of threads is known well enough
SETTLED = 64  # passes with several threads after which what made them slow before is over
WORTH_IT = 1.15  # times what a pass takes with one thread


class ThreadGovernor:
    """The thread count that a model's passes are fastest with.

    A number that OMP_NUM_THREADS names stays.

    Args:
        one_token_pass: runs a pass of the model over one token, and leaves no trace.
    """

    def __init__(self, one_token_pass: Callable[[], object]) -> None:
        self.threads = most = torch.get_num_threads()
        self._several = 1  # the number above one that may be best; 1 where there is no choice
        self._rest = FIRST_REST
        self._resting = 0  # passes with one thread that are left
        self._slow: list[float] = []  # seconds a token of the slow passes in a row that ended the use of several
        self._newest: list[float] = []  # and of all passes since the number last changed
        self._is_trial = False
        self._lock = threading.Lock()
        if most == 1 or "OMP_NUM_THREADS" in os.environ:
            return
        one_token_pass()
        choices = sorted({1, 2, most // 2, most} - {0})
        seconds = {threads: median(_timed(one_token_pass, threads)) for threads in choices}
        self._one_thread_seconds = seconds.pop(1)
        self._several = min(seconds, key=seconds.__getitem__)
        if seconds[self._several] < self._one_thread_seconds:
            self._change_to(self._several)
        else:
            self._give_up()

    def prepare(self) -> None:
        """Before a pass: the number belongs to the thread that asks torch, and a run has a thread of its own."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)

    def observe(self, num_tokens: int, seconds: float) -> None:
        """After a pass."""
        if self._several == 1 or num_tokens > MOST_TOKENS:
            return
        with self._lock:
            self._newest.append(seconds / (1 + MORE_PER_TOKEN * (num_tokens - 1)))
            if self._resting:
                self._go_on_resting()
            elif self._is_trial:
                self._go_on_trying()
            else:
                self._watch()

    def _watch(self) -> None:
        """Two slow passes in a row with several threads, and one thread it is for a while."""
        is_slow = self._newest[-1] > SLOW * self._one_thread_seconds
        self._slow = [*self._slow, self._newest[-1]] if is_slow else []
        if len(self._slow) == 2:
            self._give_up()
        elif len(self._newest) == SETTLED:
            self._rest, self._newest = FIRST_REST, []

    def _go_on_resting(self) -> None:
        self._resting -= 1
        if len(self._newest) == TRIED:
            with_one = median(self._newest)
            if self._slow and min(self._slow) < WORTH_IT * with_one:  # the other threads were not what made it slow
                self._one_thread_seconds = max(with_one, self._one_thread_seconds)
                self._rest = max(FIRST_REST, self._rest // 2)  # it was no trouble, so it makes the next rest no longer
                self._change_to(self._several)
                return
        if not self._resting:
            self._one_thread_seconds = median(self._newest[-TRIED:])  # of the text as it is now
            self._change_to(self._several, is_trial=True)

    def _go_on_trying(self) -> None:
        if self._newest[-1] > HOPELESS * self._one_thread_seconds:
            self._give_up()
        elif len(self._newest) == TRIED:
            if median(self._newest) < self._one_thread_seconds:
                self._change_to(self._several)
            else:
                self._give_up()

    def _give_up(self) -> None:
        self._change_to(1)
        self._resting, self._rest = self._rest, min(2 * self._rest, LONGEST_REST)

    def _change_to(self, threads: int, *, is_trial: bool = False) -> None:
        self.threads, self._is_trial, self._newest, self._resting = threads, is_trial, [], 0
        if threads > 1:
            self._slow = []


def _timed(one_token_pass: Callable[[], object], threads: int) -> list[float]:
    torch.set_num_threads(threads)
    seconds = []
    while len(seconds) < TIMED_PASSES and sum(seconds) < MOST_SECONDS:
        start = perf_counter()
        one_token_pass()
        seconds.append(perf_counter() - start)
    return seconds
