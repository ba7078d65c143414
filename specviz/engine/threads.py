"""How many threads torch gives a small model's matrix products: measured, and measured again when it stops being true.

A product is over when its last thread is. On a machine where another program takes a core, a second thread
makes each of the hundred products of a pass wait for the scheduler: one token may take a second instead of
ten milliseconds. So the number is chosen by timing at the start, and given up as soon as passes get slow.
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
MOST_TOKENS, MORE_PER_TOKEN = 9, 0.1  # longer passes are not judged; what each further token adds to a pass
FIRST_REST, LONGEST_REST = 64, 4096  # passes with one thread before more are tried again


class ThreadGovernor:
    """The thread count that a model's passes are fastest with.

    A number that OMP_NUM_THREADS names stays.

    Args:
        one_token_pass: runs a pass of the model over one token, and leaves no trace.
    """

    def __init__(self, one_token_pass: Callable[[], object]) -> None:
        self.threads = most = torch.get_num_threads()
        self._best = 1
        self._rest, self._resting, self._slow_passes = FIRST_REST, 0, 0
        self._lock = threading.Lock()
        if most == 1 or "OMP_NUM_THREADS" in os.environ:
            return
        one_token_pass()
        choices = sorted({1, 2, most // 2, most} - {0})
        seconds = {threads: median(_timed(one_token_pass, threads)) for threads in choices}
        self._one_thread_seconds = seconds[1]
        self._best = self.threads = min(seconds, key=seconds.__getitem__)

    def prepare(self) -> None:
        """Before a pass: the number belongs to the thread that asks torch, and a run has a thread of its own."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)

    def observe(self, num_tokens: int, seconds: float) -> None:
        """After a pass; two slow ones in a row with several threads, and one thread it is for a while."""
        if self._best == 1 or num_tokens > MOST_TOKENS:
            return
        with self._lock:
            if self._resting:
                self._resting -= 1
                self.threads = 1 if self._resting else self._best
                return
            with_one = self._one_thread_seconds * (1 + MORE_PER_TOKEN * (num_tokens - 1))
            self._slow_passes = self._slow_passes + 1 if seconds > SLOW * with_one else 0
            if self._slow_passes == 2:
                self.threads, self._resting, self._slow_passes = 1, self._rest, 0
                self._rest = min(2 * self._rest, LONGEST_REST)


def _timed(one_token_pass: Callable[[], object], threads: int) -> list[float]:
    torch.set_num_threads(threads)
    seconds = []
    while len(seconds) < TIMED_PASSES and sum(seconds) < MOST_SECONDS:
        start = perf_counter()
        one_token_pass()
        seconds.append(perf_counter() - start)
    return seconds
