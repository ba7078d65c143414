"""A run in a thread of its own, and its messages as they come.

The thread fills an event log; whoever shows the run reads it ten times a second (twenty when much comes), since each look takes time from the model. So a slow
browser never holds up the model, and a slow model never holds back what is already there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from specviz.errors import SpecVizError
from specviz.ui.messages import message

SECONDS_BETWEEN_MESSAGES = 0.1
MANY_EVENTS = (
    12  # in a message: then the next comes after half the time, so that none is too much for a browser at once
)
UNEXPECTED = "Something went wrong here that is not your doing; the server's log has the details. Try again."

logger = logging.getLogger(__name__)


class RunLike(Protocol):
    """What is needed of `specviz.runs.Run`."""

    def __iter__(self) -> Iterator[dict[str, Any]]: ...

    def cancel(self) -> None: ...


Notify = Callable[[str], None]
OpenRun = Callable[[Notify], RunLike]  # loads what is missing, telling so, and makes the run


class LiveRun:
    """One run from the press of the button to its last event.

    Args:
        run_id: names it in messages.
        open_run: called in the run's thread.
    """

    def __init__(self, run_id: str, open_run: OpenRun) -> None:
        self.run_id = run_id
        self._open_run = open_run
        self._changed = threading.Condition()
        self._events: list[dict[str, Any]] = []
        self._note = ""
        self._error: str | None = None
        self._is_over = False
        self._over = threading.Event()
        self._is_cancelled = False
        self._run: RunLike | None = None
        self._thread = threading.Thread(target=self._work, name=f"run-{run_id}", daemon=True)

    def messages(self) -> Iterator[str]:
        """Start the run and yield its messages; closing the iterator cancels the run."""
        self._thread.start()
        try:
            yield from self._messages()
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Stop soon, from any thread. What was produced stays, and the run ends with its own last event."""
        with self._changed:
            self._is_cancelled = True
            run = self._run
            self._changed.notify_all()
        if run is not None:
            run.cancel()

    def events_from(self, seq: int) -> list[dict[str, Any]]:
        """The events that there are, from number `seq` on."""
        with self._changed:
            return self._events[seq:]

    @property
    def is_over(self) -> bool:
        with self._changed:
            return self._is_over

    # ---- reading ----

    def _messages(self) -> Iterator[str]:
        seq, note, is_over = 0, "", False
        while not is_over:
            events, note, error, is_over = self._wait_for_news(seq, note)
            more = {"note": note} if note and not self._events else {}
            if error:
                more = {"error": error} if self._events else {"error": error, "refused": "run"}
            yield message(self.run_id, seq, events, done=is_over, **more)
            seq += len(events)
            if not is_over:
                self._over.wait(SECONDS_BETWEEN_MESSAGES / (2 if len(events) > MANY_EVENTS else 1))

    def _wait_for_news(self, seq: int, note: str) -> tuple[list[dict[str, Any]], str, str | None, bool]:
        with self._changed:
            self._changed.wait_for(
                lambda: len(self._events) > seq or self._note != note or self._is_over or self._stopped_before_start
            )
            if self._stopped_before_start:
                return [], "", "Stopped before it began.", True
            return self._events[seq:], self._note, self._error, self._is_over

    @property
    def _stopped_before_start(self) -> bool:
        return self._is_cancelled and self._run is None and not self._is_over

    # ---- writing, in the run's thread ----

    def _work(self) -> None:
        error = None
        try:
            run = self._open_run(self._notify)
            if self._adopt(run):
                self._record(run)
        except SpecVizError as problem:
            error = str(problem)
        except Exception:
            logger.exception("A run broke off")
            error = UNEXPECTED
        finally:
            self._finish(error)

    def _notify(self, note: str) -> None:
        with self._changed:
            self._note = note
            self._changed.notify_all()

    def _adopt(self, run: RunLike) -> bool:
        """Whether the run should begin: not when it was stopped while models were loaded."""
        with self._changed:
            if self._is_cancelled:
                return False
            self._run = run
            return True

    def _record(self, events: Iterable[dict[str, Any]]) -> None:
        for event in events:
            with self._changed:
                self._events.append(event)
                self._changed.notify_all()

    def _finish(self, error: str | None) -> None:
        with self._changed:
            has_said_so = any(event["type"] == "run_failed" for event in self._events[-1:])
            self._error = None if has_said_so else error
            self._is_over = True
            self._run = None
            self._changed.notify_all()
        self._over.set()


class RunRegistry:
    """The newest run of each session: at most one goes on at a time, and each can be found to be stopped."""

    MAX_SESSIONS = 200

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_session: dict[str, LiveRun] = {}

    def register(self, session: str, run: LiveRun) -> None:
        """Make `run` the session's run; an earlier one is cancelled."""
        self.forget(session)
        with self._lock:
            self._by_session[session] = run
            while len(self._by_session) > self.MAX_SESSIONS:
                self._by_session.pop(next(iter(self._by_session)))

    def cancel(self, session: str) -> None:
        """Stop the session's run, if one goes on."""
        with self._lock:
            run = self._by_session.get(session)
        if run is not None:
            run.cancel()

    def forget(self, session: str) -> None:
        """The session is gone, or turns to another run."""
        with self._lock:
            run = self._by_session.pop(session, None)
        if run is not None:
            run.cancel()

    def find(self, run_id: object) -> LiveRun | None:
        """The run of that name; names are not to be guessed."""
        with self._lock:
            return next((run for run in self._by_session.values() if run.run_id == run_id), None)
