"""The recorded runs that the Early exit tab shows first: one trace a file, in the order of their numbers.

1-map.jsonl  2-timed.jsonl  3-sweep-sweep.jsonl  ...  7-beside-plain.jsonl  8-beside-early_exit.jsonl  ...
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from specviz.presets import EMBEDDED_TARGET
from specviz.trace.reader import read_trace
from specviz.ui.exit_series import part_mark, series_mark

RECORDED_DIR = Path(__file__).resolve().parents[2] / "assets" / "early_exit" / "recorded"
NAME = re.compile(r"(?P<number>\d+)-(?:(?P<series>beside|sweep)-)?(?P<role>[a-z_]+)")


def recorded_events(folder: Path = RECORDED_DIR) -> list[dict[str, Any]]:
    """Everything that is recorded there as one stream of events, as `RunSeries` makes it; [] where nothing is."""
    by_series: dict[str, list[tuple[str, Path]]] = {}
    named = [(found, path) for path in folder.glob("*.jsonl") if (found := NAME.fullmatch(path.stem))]
    for found, path in sorted(named, key=lambda pair: int(pair[0]["number"])):
        by_series.setdefault(found["series"] or "pair", []).append((found["role"], path))
    events = []
    for name, parts in by_series.items():
        events.append(series_mark(name, [role for role, _ in parts], EMBEDDED_TARGET))
        for role, path in parts:
            events += [part_mark(role), *read_trace(path)]
    return events
