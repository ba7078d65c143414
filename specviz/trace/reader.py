"""Reading a trace that anybody may have made: bounded in size, checked in full, refused in one sentence.

    trace = read_trace("run.jsonl")
    trace.is_incomplete      # True when the run was killed before it could write its end
    for event in trace: ...

What it knows of an event is checked (`shapes.py`, `consistency.py`). Fields that it does not know stay in
the event, and events of a type that it does not know are left out: both may be added to version 1.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from specviz.errors import BadRequest
from specviz.events import EVENT_TYPES, SCHEMA_VERSION, Event
from specviz.trace.checks import Malformed, anything, shown
from specviz.trace.consistency import StoryCheck
from specviz.trace.limits import DEFAULT_LIMITS, TraceLimits
from specviz.trace.shapes import event_checks

REMEDY = "correct that line or record the run again"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


class Trace(list[Event]):
    """The events of a trace, in order; a list in every other way.

    Attributes:
        is_incomplete: the trace ends without run_finished or run_failed, or in the middle of a line, as
            that of a killed run does. All that was whole is there.
    """

    is_incomplete: bool = False


def read_trace(
    source: str | os.PathLike[str] | bytes | Iterable[str | bytes],
    limits: TraceLimits = DEFAULT_LIMITS,
    *,
    name: str | None = None,
) -> Trace:
    """Read and check a whole trace.

    Args:
        source: the path of a file, the bytes of one, or its lines (an open file will do).
        limits: bounds on sizes; the default takes files up to 64 MB.
        name: what a sentence calls the source; the default is the file's name, without its folder.

    Raises:
        BadRequest: not readable, too large, not a trace, of another version, or wrong somewhere: one
            sentence with line, field, value and remedy.
    """
    if isinstance(source, (str, os.PathLike)):
        name = shown_name(source) if name is None else name
        with _open_regular(source, name, limits) as file:
            return _Reading(name, limits).read(file)
    if isinstance(source, (bytes, bytearray)):
        source = io.BytesIO(source)
    return _Reading("the trace" if name is None else name, limits).read(source)


def shown_name(path: str | os.PathLike[str]) -> str:
    """A file's name for a sentence, without anything that a terminal would act upon."""
    return _printable(Path(path).name or str(path), 100)


def shown_path(path: str | os.PathLike[str]) -> str:
    """The same of a path as it was given, its folder included."""
    return _printable(os.fspath(path), 200)


def _printable(text: str, longest: int) -> str:
    return text if text.isprintable() and len(text) <= longest else shown(text)


def _open_regular(path: str | os.PathLike[str], name: str, limits: TraceLimits) -> io.BufferedReader:
    """Open a file that has an end: no folder, no device, no pipe that might never speak."""
    try:
        status = Path(path).stat()
        if stat.S_ISDIR(status.st_mode):
            raise BadRequest(f"{name} is a folder: give the path of a trace file in it.")
        if not stat.S_ISREG(status.st_mode):
            raise BadRequest(f"{name} is not a regular file: save the trace to a file first.")
        _require_size(status.st_size, name, limits)
        return Path(path).open("rb")
    except FileNotFoundError:
        raise BadRequest(f"There is no file {shown(os.fspath(path), 300)}: give the path of a trace file.") from None
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) and fault.strerror else "not a usable path"
        raise BadRequest(f"{name} cannot be read ({reason}): give the path of a trace file.") from None


def _require_size(num_bytes: int, name: str, limits: TraceLimits) -> None:
    if num_bytes > limits.max_bytes:
        raise BadRequest(
            f"{name} is larger than the {limits.max_bytes / 2**20:g} MB that a trace may have: "
            "record it with --trace-detail light, or fewer new tokens."
        )


class _Reading:
    """One pass over the lines of one source."""

    def __init__(self, name: str, limits: TraceLimits):
        self.name = name
        self.limits = limits
        self.checks = event_checks(limits)
        self.check_unknown = anything(limits.max_text, limits.max_unknown_items, limits.max_depth)
        self.story = StoryCheck()
        self.events = Trace()
        self.line_number = 0
        self.num_values = 0

    def read(self, source: Iterable[str | bytes]) -> Trace:
        for line in self._lines(source):
            event = self._parse(line)
            if event is None:
                self.events.is_incomplete = True
                break
            self._take(event)
        if not self.events:
            raise BadRequest(f"{self.name} holds no event: give a trace that `generate --trace FILE` wrote.")
        self.events.is_incomplete |= self.story.end is None
        return self.events

    def _lines(self, source: Iterable[str | bytes]) -> Iterator[bytes]:
        """The lines that hold something, as bytes; ended by \\n only, as JSON Lines says."""
        num_bytes = 0
        for line in self._raw_lines(source):
            self.line_number += 1
            num_bytes += len(line)
            _require_size(num_bytes, self.name, self.limits)
            if self.line_number > self.limits.max_events:
                raise self._refusal(f"the trace has more than {self.limits.max_events} lines", "record a shorter run")
            if self.line_number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
                self._refuse_other_formats(line)
            if len(line) > self.limits.max_line_bytes:
                problem = f"the line is longer than the {self.limits.max_line_bytes} bytes allowed"
                raise self._refusal_of_line(line, problem, "record a shorter run")
            if not line.isspace() and line:
                yield line

    def _raw_lines(self, source: Iterable[str | bytes]) -> Iterator[bytes]:
        readline = getattr(source, "readline", None)
        if readline is not None:  # a file: never take in more of a line than is allowed
            source = iter(lambda: readline(self.limits.max_line_bytes + 1), readline(0))
        try:
            for line in source:
                yield line.encode() if isinstance(line, str) else line
        except (UnicodeError, OSError) as fault:
            self.line_number += 1
            raise self._refusal(f"the line cannot be read ({type(fault).__name__})", "save the file as UTF-8") from None

    def _refuse_other_formats(self, line: bytes) -> None:
        if line.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")):
            raise self._refusal("the file is compressed", "unpack it first")
        if line.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise self._refusal("the file is UTF-16", "save it as UTF-8")

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        """The object on a line; None when the line is the cut-off end of the file of a killed run."""
        self.num_values += line.count(b",") + line.count(b"[") + line.count(b"{") + 1  # never too few
        if self.num_values > self.limits.max_values:
            raise self._refusal(
                f"the trace holds more than {self.limits.max_values} values", "record it with --trace-detail light"
            )
        is_cut_off = not line.endswith(b"\n") and line.lstrip().startswith(b"{") and self.events
        try:
            decoded = line.decode("utf-8")
            event = json.loads(decoded, object_pairs_hook=_object, parse_constant=_refuse_constant)
            if _SURROGATE_ESCAPE.search(decoded):
                json.dumps(event, ensure_ascii=False).encode("utf-8")
        except UnicodeDecodeError as fault:
            if is_cut_off:
                return None
            raise self._refusal_of_line(
                line, f"byte {fault.start + 1} is not UTF-8", "save the file as UTF-8"
            ) from None
        except UnicodeEncodeError:
            raise self._refusal("a text holds half of a surrogate pair", REMEDY) from None
        except RecursionError:
            raise self._refusal("the JSON is nested too deeply", REMEDY) from None
        except json.JSONDecodeError as fault:
            if is_cut_off:
                return None
            problem = f"not valid JSON ({fault.msg} at column {fault.colno})"
            raise self._refusal_of_line(line, problem, REMEDY) from None
        except Malformed as fault:
            raise self._refusal(fault.sentence_part(), REMEDY) from None
        except ValueError:  # Python's own bound on the digits of a number
            raise self._refusal("a number has too many digits", REMEDY) from None
        if not isinstance(event, dict):
            raise self._refusal_of_line(line, f"it is {shown(event)}, not one JSON object", REMEDY)
        return event

    def _take(self, event: dict[str, Any]) -> None:
        """Check an event against its table and the story so far, and keep it."""
        try:
            self._require_known_version(event)
            type_ = event.get("type")
            if not isinstance(type_, str):
                raise Malformed(
                    f"is {shown(type_)}, not the name of an event" if "type" in event else "is missing", "type"
                )
            if type_ not in EVENT_TYPES:
                self.check_unknown(event)
                return
            self.checks[type_](event)
            self.story.add(event)
        except Malformed as fault:
            raise self._refusal(fault.sentence_part(), REMEDY) from None
        self.events.append(event)

    def _require_known_version(self, event: dict[str, Any]) -> None:
        """Before anything else is asked of a trace: is it one, and one of a version that is known here?"""
        if self.events:
            return
        if event.get("type") != "run_started":
            raise self._no_trace(f"its type is {shown(event.get('type'))}")
        version = event.get("schema")
        if type(version) is not int or version != SCHEMA_VERSION:
            raise self._refusal(
                f"schema is {shown(version)}, and the versions known here are: {SCHEMA_VERSION}",
                "update SpecViz, or record the run again with this version",
            )

    def _refusal_of_line(self, line: bytes, problem: str, remedy: str) -> BadRequest:
        """Of a line that is no event; where it is the first one, and does not look like one either, this is another file."""
        is_trace = self.events or b'"type"' in line
        return self._refusal(problem, remedy) if is_trace else self._no_trace(problem)

    def _no_trace(self, problem: str) -> BadRequest:
        return BadRequest(
            f"{self.name} is not a trace of SpecViz, which is JSON Lines that begin with a run_started event "
            f"(line {self.line_number}: {problem}): `python -m specviz generate --trace FILE` makes one."
        )

    def _refusal(self, problem: str, remedy: str) -> BadRequest:
        return BadRequest(f"{self.name}, line {self.line_number}: {problem}: {remedy}.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: two readers might believe two different ones of a pair."""
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Malformed("is given twice", key)
            seen.add(key)
    return value


def _refuse_constant(name: str) -> None:
    raise Malformed(f"holds {name}, which is no JSON number")
