"""Records anew what the Early exit tab shows first: `python -m specviz.ui.record_series [FOLDER]`.

On a machine that does nothing else, as its times are shown. Every run is made twice, and the second is kept.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from specviz.presets import EMBEDDED_TARGET
from specviz.ui.exit_request import DEFAULT_PROMPT, SERIES, ExitRequest, exit_request_from
from specviz.ui.model_shelf import ModelShelf
from specviz.ui.recorded_series import RECORDED_DIR

ASKED = {
    "pair": EMBEDDED_TARGET,
    "prompt": DEFAULT_PROMPT,
    "heads": "auto",
    "measure": "top1",
    "threshold": 0.5,
    "self_layer": 4,
    "max_new_tokens": 56,
}
RECORDED_SERIES = ("pair", "sweep", "beside")


def record_series(folder: Path = RECORDED_DIR, threshold: float = ASKED["threshold"]) -> None:
    """Write each run of the tab's two series as a trace; older ones of the same names are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    shelf, number = ModelShelf(), 0
    for name in RECORDED_SERIES:
        request = exit_request_from({**ASKED, "series": name, "threshold": threshold})
        for place, role in enumerate(SERIES[name]):
            number += 1
            prefix = "" if name == "pair" else f"{name}-"
            _record(shelf, request.at(place), role, folder / f"{number}-{prefix}{role}.jsonl")


def _tell(words: str) -> None:
    print(words, file=sys.stderr)


def _record(shelf: ModelShelf, request: ExitRequest, role: str, path: Path) -> None:
    if role != "map":  # the top lists of the others are not on the board
        request = replace(request, settings=replace(request.settings, trace_detail="light"))
    list(shelf.open_exit_part(request, role, _tell))
    events = list(shelf.open_exit_part(request, role, _tell))
    lines = (json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in events)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    _tell(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    record_series(*(Path(argument) for argument in sys.argv[1:2]))
