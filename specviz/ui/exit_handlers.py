"""What happens when something on the Early exit tab is used. Everything that arrives is checked here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import gradio as gr

from specviz.errors import BadRequest, SpecVizError
from specviz.trace.limits import TraceLimits
from specviz.trace.reader import read_trace
from specviz.ui.exit_page import export_exit_page
from specviz.ui.exit_request import ExitRequest, exit_request_from
from specviz.ui.exit_series import RunSeries
from specviz.ui.handlers import refusal, session_of
from specviz.ui.live_run import LiveRun, Notify, RunLike, RunRegistry
from specviz.ui.messages import RECORDING, message
from specviz.ui.recorded_series import RECORDED_DIR, recorded_events

ExitRunFactory = Callable[[ExitRequest, str, Notify], RunLike]  # request, role, notify

MOST_RUNS_ON_A_PAGE = 24
MOST_CHARS_ON_A_PAGE = 16 * 2**20  # of all its runs
PAGE_LIMITS = TraceLimits(max_bytes=MOST_CHARS_ON_A_PAGE)


class ExitHandlers:
    """The tab's handlers, over the page's own registry of runs: a session has one run at a time, whichever tab it began on.

    Args:
        run_factory: makes one run of a series, loading what is missing.
        recorded_dir: where the recorded series is.
    """

    def __init__(self, run_factory: ExitRunFactory, registry: RunRegistry, recorded_dir: Path = RECORDED_DIR) -> None:
        self._run_factory = run_factory
        self._registry = registry
        self._recorded_dir = recorded_dir

    def run(self, values: Any, request: gr.Request) -> Iterator[str]:
        """Messages of the series that `values` ask for, as they come."""
        try:
            wanted = exit_request_from(values)
        except SpecVizError as error:
            yield refusal(error)
            return

        def open_series(notify: Notify) -> RunSeries:
            return RunSeries(
                wanted.series,
                wanted.roles,
                wanted.pair.name,
                lambda number, role: self._run_factory(wanted.at(number), role, notify),
            )

        live = LiveRun(secrets.token_hex(8), open_series)
        self._registry.register(session_of(request), live)
        yield from live.messages()

    def stop(self, request: gr.Request) -> None:
        """Cancels the session's own run; its last events still come through `run`."""
        self._registry.cancel(session_of(request))

    def recorded(self) -> str:
        """The recorded series as one message; "" without one."""
        return self._recorded_message

    @cached_property
    def _recorded_message(self) -> str:
        events = recorded_events(self._recorded_dir)
        return message("recorded-series", 0, events, source=RECORDING, done=True) if events else ""

    def page_of(self, payload: Any) -> dict[str, str]:
        """The runs of a board as one HTML page, {"page"}; or what is wrong with them, {"error"}.

        Args:
            payload: a list of {"role", "lines"}; the lines of each are a trace, and checked like any other.
        """
        try:
            lines_of = [_lines(part) for part in _listed(payload)]
            if sum(len(line) for _, lines in lines_of for line in lines) > MOST_CHARS_ON_A_PAGE:
                raise BadRequest("These runs are too much for one page: save the traces, or make fewer new tokens.")
            return {
                "page": export_exit_page([(role, list(read_trace(lines, PAGE_LIMITS))) for role, lines in lines_of])
            }
        except SpecVizError as error:
            return {"error": str(error)}


def _listed(payload: Any) -> list[Any]:
    if not isinstance(payload, list) or not 1 <= len(payload) <= MOST_RUNS_ON_A_PAGE:
        raise BadRequest(f"A page holds 1 to {MOST_RUNS_ON_A_PAGE} runs: run something first, or save the traces.")
    return payload


def _lines(part: Any) -> tuple[str, list[str]]:
    """Role and lines of a run, not yet read."""
    lines = part.get("lines") if isinstance(part, dict) else None
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadRequest("A run of this page is no trace: run it again.")
    return str(part.get("role"))[:40], [f"{line}\n" for line in lines]
