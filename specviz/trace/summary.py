"""The end of a run as one JSON object: what `generate --json` and `replay --json` print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specviz.events import Event
from specviz.metrics import MetricsFold
from specviz.trace.closing import RunSoFar


class SummaryFold:
    """Feed it the events in order with `add`; ask at any time.

    The counts and metrics are folded from the rounds, not taken from the run's own word. A run without an
    end (a killed one) is told as far as it got, with `reason` null. `error` is null unless the run failed.
    """

    def __init__(self) -> None:
        self._so_far, self._fold = RunSoFar(), MetricsFold()
        self._finish: Event | None = None
        self._identity: dict[str, Any] | None = None
        self._error: str | None = None

    def add(self, event: Event) -> None:
        """Take in one event."""
        self._so_far.add(event)
        self._fold.add(event)
        match event["type"]:
            case "run_finished":
                self._finish = event
            case "run_failed":
                self._error = event["error"]
            case "identity":
                self._identity = {key: value for key, value in event.items() if key not in ("type", "t")}

    def summary(self) -> dict[str, Any]:
        """`text`, `token_ids`, `reason`, `counts`, `metrics`, `seconds`, `identity`, `error` of the run so far."""
        end = self._finish or self._so_far.cancelled()
        return {
            "text": end["output_text"],
            "token_ids": end["token_ids"],
            "reason": end["reason"] if self._finish else None,
            "counts": self._fold.counts,
            "metrics": self._fold.metrics(),
            "seconds": end["seconds"],
            "identity": self._identity,
            "error": self._error,
        }


def summarize(events: Iterable[Event]) -> dict[str, Any]:
    """The summary of a whole run."""
    fold = SummaryFold()
    for event in events:
        fold.add(event)
    return fold.summary()
