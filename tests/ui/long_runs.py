"""A long run for the tests of the stage: the rounds of a recorded one, over and over, with positions that go on."""

from __future__ import annotations

import copy
import json
from itertools import cycle
from typing import Any

from specviz.metrics import fold_metrics
from specviz.ui.recordings import RECORDINGS_DIR


def recorded(name: str) -> list[dict[str, Any]]:
    """The events of a recording that ships with the product."""
    lines = (RECORDINGS_DIR / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def long_run(num_tokens: int, name: str = "01-weekdays") -> list[dict[str, Any]]:
    """A valid run of at least `num_tokens` new tokens."""
    events = recorded(name)
    scripts = cycle([event for event in events if event["type"] == "round"])
    length, rounds, num_new, clock = len(events[0]["prompt"]["token_ids"]), [], 0, events[1]["t"]
    while num_new < num_tokens:
        event = copy.deepcopy(next(scripts))
        before, num_kept = length - 1, len(event["committed"])
        clock += sum(event["seconds"].values())
        event.update(round=len(rounds) + 1, t=clock)
        event["cache"]["target"].update(
            before=before,
            peak=before + 1 + len(event["draft"]),
            after=before + num_kept,
            bytes=(before + num_kept) * 46080,
        )
        length, num_new = length + num_kept, num_new + num_kept
        rounds.append(event)
    last = next(event for event in events if event["type"] == "run_finished")
    folded = fold_metrics(rounds)
    return [
        *events[:2],
        *rounds,
        {
            **last,
            "t": clock,
            "token_ids": [i for event in rounds for i in event["committed"]],
            "counts": folded.counts,
            "metrics": folded.metrics(),
        },
    ]
