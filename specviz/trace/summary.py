"""The end of a run as one JSON object: what `generate --json` and `replay --json` print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specviz.events import Event
from specviz.metrics import MetricsFold
from specviz.trace.closing import RunSoFar


def summarize(events: Iterable[Event]) -> dict[str, Any]:
    """`text`, `token_ids`, `reason`, `counts`, `metrics`, `seconds`, `identity`, `error` of a whole run.

    The counts and metrics are folded from the rounds, not taken from the run's own word. A run without an
    end (a killed one) is told as far as it got, with `reason` null. `error` is null unless the run failed.
    """
    so_far, fold = RunSoFar(), MetricsFold()
    finish = identity = error = None
    for event in events:
        so_far.add(event)
        fold.add(event)
        match event["type"]:
            case "run_finished":
                finish = event
            case "run_failed":
                error = event["error"]
            case "identity":
                identity = {key: value for key, value in event.items() if key not in ("type", "t")}
    end = finish or so_far.cancelled()
    return {
        "text": end["output_text"],
        "token_ids": end["token_ids"],
        "reason": finish["reason"] if finish else None,
        "counts": fold.counts,
        "metrics": fold.metrics(),
        "seconds": end["seconds"],
        "identity": identity,
        "error": error,
    }
