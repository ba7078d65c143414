"""Writing a trace: JSON Lines, UTF-8, one event a line, each line handed to the system as it is written.

    for event in record(run, "run.jsonl"): ...

A trace is written in place, not to a temporary file that is renamed at the end: what a killed run, or a
full disk, leaves behind is every whole line up to then, which the reader shows. For the same reason an
earlier file of that name is kept until the first event is there.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from specviz.errors import BadRequest, RunFailed
from specviz.events import Event
from specviz.trace.closing import RunSoFar
from specviz.trace.reader import shown_path

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

# JSON allows these raw, but tools that split text at every kind of line end would break the line.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class TraceWriter:
    """Writes one run's events to a file; a context manager.

    On leaving, a run that has no end yet gets one: `run_finished` with reason `cancelled` when it was
    interrupted or left, `run_failed` when an error came. If no event was written, nothing is changed on disk.

    Args:
        path: the file; an existing one is replaced at the first event.
        keep_draft_tokens: also write the live-only `draft_token` events.

    Raises:
        BadRequest: the path cannot be written (said at once, before anything is computed).
        RunFailed: from `write`, when the disk is full or the file went away; what was written stays.
    """

    def __init__(self, path: str | os.PathLike[str], keep_draft_tokens: bool = False):
        self.path = Path(path)
        self.keep_draft_tokens = keep_draft_tokens
        self._so_far = RunSoFar()
        self._file: BinaryIO | None
        self._file, self._is_new = _open_for_append(self.path)

    def write(self, event: Event) -> None:
        """Append one event as one line."""
        if self._file is None:
            raise ValueError("the trace is closed")
        if event["type"] == "draft_token" and not self.keep_draft_tokens:
            return
        line = event_line(event)
        is_first = not self._so_far.has_begun
        self._so_far.add(event)  # before the write: an interrupt in it leaves the line in the buffer, for `close`
        try:
            if is_first and stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                self._file.truncate(0)
            self._file.write(line)
            self._file.flush()
        except OSError as fault:
            self._abandon()
            raise RunFailed(_write_failure(self.path, fault)) from fault

    def close(self, error: BaseException | None = None) -> None:
        """End the trace, for `error` if there was one, and close the file. A second call does nothing."""
        if self._file is None:
            return
        try:
            if self._so_far.has_begun and not self._so_far.has_ended:
                is_failure = isinstance(error, Exception)  # a KeyboardInterrupt or GeneratorExit is none
                self.write(self._so_far.failed(error) if is_failure else self._so_far.cancelled())
        finally:
            self._abandon()
            if not self._so_far.has_begun and self._is_new:
                with suppress(OSError):
                    self.path.unlink()

    def _abandon(self) -> None:
        """Close the file whatever state it is in."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close(error)
        except RunFailed:
            if error is None:
                raise  # else the first error is the one to tell


def record(events: Iterable[Event], path: str | os.PathLike[str], keep_draft_tokens: bool = False) -> Iterator[Event]:
    """Yield `events` on, each one after it was written to `path`; closing this closes the run too.

    Raises:
        BadRequest, RunFailed: as `TraceWriter`; and whatever comes out of `events`.
    """
    source = iter(events)
    try:
        with TraceWriter(path, keep_draft_tokens) as writer:
            for event in source:
                writer.write(event)
                yield event
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()


def require_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, before a model is loaded for it; leaves nothing behind.

    Raises:
        BadRequest: with the reason.
    """
    TraceWriter(path).close()


def event_line(event: Event) -> bytes:
    """One event as the line of a trace, its line end included.

    A lone surrogate, which UTF-8 has no bytes for, becomes U+FFFD.

    Raises:
        RunFailed: the event holds NaN, an infinity or something that JSON has no value for.
    """
    try:
        line = _encode(event).translate(_LINE_ENDS) + "\n"
    except (TypeError, ValueError) as fault:
        raise RunFailed(f"An event of type {event['type']} cannot be written as JSON: {fault}.") from fault
    try:
        return line.encode("utf-8")
    except UnicodeEncodeError:
        return line.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def _open_for_append(path: Path) -> tuple[BinaryIO, bool]:
    """The open file, and whether that made it."""
    try:
        if path.is_dir():
            raise BadRequest(f"The trace cannot be written to {path}, which is a folder: add a file name.")
        is_new = not path.exists()
        return path.open("ab"), is_new
    except FileNotFoundError:
        raise BadRequest(
            f"The trace cannot be written: the folder {path.parent} does not exist, create it first."
        ) from None
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) and fault.strerror else "not a usable path"
        raise BadRequest(
            f"The trace cannot be written to {shown_path(path)} ({reason}): choose another path."
        ) from None


def _write_failure(path: Path, fault: OSError) -> str:
    if fault.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = "the disk is full"
    else:
        reason = fault.strerror or type(fault).__name__
    return f"The trace could not be written any further ({reason}): {path} holds the events up to then."
