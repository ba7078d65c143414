"""Several runs on one prompt, one after the other, as one stream of events.

    {"type": "series", "name": "pair", "roles": ["map", "timed"], "pair": "embedded"}
    {"type": "part", "role": "map"}
    {"type": "run_started", ...} and the rest of that run
    {"type": "part", "role": "timed"}
    ...

Between two of the marks is a whole trace. A run that breaks off says so, and the next one begins all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from specviz.errors import SpecVizError
from specviz.ui.live_run import RunLike

OpenPart = Callable[[int, str], RunLike]  # by its number and role


class RunSeries:
    """Looks like one run: iterates events, can be cancelled from another thread."""

    def __init__(self, name: str, roles: Sequence[str], pair: str, open_part: OpenPart) -> None:
        self._mark = series_mark(name, roles, pair)
        self._roles, self._open_part = roles, open_part
        self._cancelled = threading.Event()
        self._current: RunLike | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield self._mark
        for number, role in enumerate(self._roles):
            if self._cancelled.is_set():
                return
            yield part_mark(role)
            yield from self._part(number, role)

    def cancel(self) -> None:
        """Stop soon: the run in hand ends as a cancelled one does, and none follows."""
        self._cancelled.set()
        if (run := self._current) is not None:
            run.cancel()

    def _part(self, number: int, role: str) -> Iterator[dict[str, Any]]:
        try:
            self._current = run = self._open_part(number, role)
            if self._cancelled.is_set():
                run.cancel()
            yield from run
        except SpecVizError as error:
            yield {"type": "run_failed", "t": 0.0, "error": str(error), "round": 0}
        finally:
            self._current = None


def series_mark(name: str, roles: Iterable[str], pair: str) -> dict[str, Any]:
    """What comes before the first run."""
    return {"type": "series", "name": name, "roles": list(roles), "pair": pair}


def part_mark(role: str) -> dict[str, Any]:
    """What comes before each run."""
    return {"type": "part", "role": role}
