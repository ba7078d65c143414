"""The recorded runs that come with the product, and those that a visitor opens."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.trace.reader import read_trace
from specviz.trace.sentences import drafter_words
from specviz.ui.messages import RECORDING, message_in_parts

RECORDINGS_DIR = Path(__file__).resolve().parents[2] / "assets" / "traces"


@dataclass(frozen=True, slots=True)
class Recording:
    """One trace of the gallery: its name is its file's, its title what was run."""

    name: str
    title: str
    events: list[dict[str, Any]]


def load_recordings(folder: Path = RECORDINGS_DIR) -> tuple[Recording, ...]:
    """All recordings of a folder, by file name."""
    return tuple(_load(path) for path in sorted(folder.glob("*.jsonl")))


def recording_messages(events: list[dict[str, Any]], name: str = "", **more: str) -> Iterator[str]:
    """The messages that put a recorded run on the stage; it may be put there again and again.

    Args:
        name: of a recording of the gallery, so that the page's address can name it.
        more: as in `message`, such as an error that is shown with it; empty texts are left out.
    """
    more = {key: text for key, text in (("recording", name), *more.items()) if text}
    return message_in_parts(f"recording-{secrets.token_hex(4)}", events, source=RECORDING, **more)


def _load(path: Path) -> Recording:
    events = list(read_trace(path))
    return Recording(path.stem, _title(events[0]), events)


def _title(started: dict[str, Any]) -> str:
    drafter = drafter_words(started["drafter"]["kind"])
    if started["drafter"].get("lookup_first"):
        drafter += ", lookup first"
    temperature = started["settings"].get("temperature", 0)
    how = "greedy" if not temperature else f"temperature {temperature:g}"
    prompt = " ".join(started["prompt"]["text"].split())
    prompt = prompt if len(prompt) <= 48 else prompt[:47] + "…"
    return f"{drafter}, {how}: {prompt}"
