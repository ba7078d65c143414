"""A run on its way to the reader that is written down as it passes: a trace that fails takes no answer with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from specviz.errors import RunFailed, SpecVizError
from specviz.events import Event
from specviz.trace.writer import TraceWriter


class Recording:
    """Yields the events of a run on, each one after it was written to `path`; None writes nothing.

    Iterate once. Closing the iterator, or an error of the run, ends the trace as `TraceWriter` does.

    Attributes:
        fault: why the trace is not whole, once that is known; the run goes on without it.
    """

    def __init__(self, events: Iterable[Event], path: str | None) -> None:
        self.fault: SpecVizError | None = None
        self._events, self._path = events, path

    def __iter__(self) -> Iterator[Event]:
        events = iter(self._events)
        with ExitStack() as stack:
            stack.callback(getattr(events, "close", lambda: None))
            writer = None if self._path is None else self._open(stack)
            for event in events:
                if writer is not None and self.fault is None:
                    self._write(writer, event)
                yield event

    def _open(self, stack: ExitStack) -> TraceWriter | None:
        try:
            writer = TraceWriter(self._path)
        except SpecVizError as fault:  # it could be written before the model was loaded
            self.fault = RunFailed(str(fault))
            return None
        stack.callback(self._look_whether_it_is_there)
        return stack.enter_context(writer)

    def _write(self, writer: TraceWriter, event: Event) -> None:
        try:
            writer.write(event)
        except RunFailed as fault:
            self.fault = fault

    def _look_whether_it_is_there(self) -> None:
        """A file that somebody took away while it was open is written without an error, and lost."""
        if self.fault is None and not Path(self._path).exists():
            self.fault = RunFailed(f"The trace is lost: {self._path} was removed while the run was written to it.")
