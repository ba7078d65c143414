"""The clock of a run: wall time, less the time that the consumer of the events kept it waiting."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")


class RunClock:
    """Seconds since the run's start. `waiting` is what the consumer took; `busy` leaves it out."""

    def __init__(self) -> None:
        self._start = perf_counter()
        self.waiting = 0.0

    @property
    def elapsed(self) -> float:
        return perf_counter() - self._start

    @property
    def busy(self) -> float:
        return self.elapsed - self.waiting

    def hand_over(self, event: T) -> Iterator[T]:
        """`yield from clock.hand_over(event)`: the time until the consumer returns is waiting."""
        before = perf_counter()
        try:
            yield event
        finally:
            self.waiting += perf_counter() - before


class Laps:
    """Splits busy time into named parts that sum to the whole."""

    def __init__(self, clock: RunClock, *names: str) -> None:
        self._clock = clock
        self._mark = clock.busy
        self.seconds = dict.fromkeys(names, 0.0)

    def end(self, name: str) -> None:
        """All time since the last lap's end belongs to `name`."""
        now = self._clock.busy
        self.seconds[name] += now - self._mark
        self._mark = now
