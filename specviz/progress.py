"""Progress of long work on stderr: a bar where there is a terminal, else one line for each stage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Protocol

SECONDS_BETWEEN_LINES = 60

STAGES = {
    "wait": "Waiting for another SpecViz that is fetching the model",
    "download": "Downloading the model",
    "convert": "Converting the model (once)",
    "quantize": "Making its int8 copy (once, about a minute)",
    "generate": "The target writes text",
    "states": "Computing the target's states again",
    "train": "Training the draft",
    "answer": "The target answers the suite",
    "evaluate": "Measuring the draft",
    "train_exits": "Training the exit heads",
    "evaluate_exits": "Measuring the exit heads",
    "replay_exits": "Following the target's text with real exits",
    "draft_exits": "Drafting with the exit heads",
}


class Progress(Protocol):
    """Told about long work: a stage (a key of `STAGES`), how much is done, and of how much (0 = unknown)."""

    def __call__(self, stage: str, done: int, total: int) -> None: ...


def no_progress(stage: str, done: int, total: int) -> None:
    """Says nothing."""


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """A `Progress` that draws on stderr while the block runs, and never on stdout."""
    if sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _Lines()


class _Lines:
    def __init__(self) -> None:
        self._stage = ""
        self._began = self._said = 0.0
        self._done_before = 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = monotonic()
        if stage != self._stage:
            self._stage, self._began, self._said, self._done_before = stage, now, now, done
            size = f" ({total / 1e6:.0f} MB)" if stage == "download" else ""
            print(f"{STAGES[stage]}{size} ...", file=sys.stderr, flush=True)
        elif total and done > self._done_before and now - self._said > SECONDS_BETWEEN_LINES:
            self._said = now
            left = (now - self._began) * (total - done) / (done - self._done_before)
            print(f"  {done / total:.0%}, about {left / 60:.0f} min left", file=sys.stderr, flush=True)


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    tasks: dict[str, int] = {}
    with RichProgress(*columns, console=Console(stderr=True)) as bar:

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(STAGES[stage], total=None, amount="")
            amount = f"{done / 1e6:.0f}/{total / 1e6:.0f} MB" if stage == "download" else ""
            bar.update(tasks[stage], completed=done, total=total or None, amount=amount)

        yield report
