"""What travels to the stage: a header line and one event a line, in one string.

    {"run": "3f…", "seq": 12, "done": 0, "source": "live"}
    {"type": "round", …}

`seq` is the number of the first event in the message. A message may come twice or get lost: the stage
takes events in by number, and asks for those it lacks. No `<` is ever sent as such, so that nothing on
the way can take text of a model for markup.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

RECORDING, LIVE = "recording", "live"
MAX_MESSAGE_CHARS = 256_000


def message(
    run_id: str, seq: int, events: Iterable[dict[str, Any]] = (), *, source: str = LIVE, done: bool = False, **more: str
) -> str:
    """One message. `more` may hold a `note` (what is going on), an `error` (a sentence for the user), `refused` (what
    the error is about, where that is not the run on show: "run", "file" or "link"), `forget` (what to take out of the
    page's address: names with "&" between them), or the name of the `recording` that this is."""
    header = {"run": run_id, "seq": seq, "done": int(done), "source": source, **more}
    return "\n".join([_line(header), *map(_line, events)])


def message_in_parts(run_id: str, events: Sequence[dict[str, Any]], *, source: str, **more: str) -> Iterator[str]:
    """A whole run as messages of a size that a browser takes in without a stop; `more` as in `message`."""
    seq, part, size = 0, [], 0
    for event in events:
        line_size = len(json.dumps(event))
        if part and size + line_size > MAX_MESSAGE_CHARS:
            yield message(run_id, seq, part, source=source, **more)
            seq, part, size = seq + len(part), [], 0
        part.append(event)
        size += line_size
    yield message(run_id, seq, part, source=source, done=True, **more)


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
