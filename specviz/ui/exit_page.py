"""The runs of an Early exit board as one HTML file that shows them anywhere: no server, no network, nothing beside it."""

from __future__ import annotations

import html
from collections.abc import Sequence

from specviz import __version__
from specviz.events import Event
from specviz.presets import EMBEDDED_TARGET
from specviz.trace.visible_text import shortened
from specviz.ui.bundle import board_css, board_file_host_script, board_script, file_page_css
from specviz.ui.exit_series import part_mark, series_mark
from specviz.ui.export_page import LONGEST_PROMPT, PAGE, content_security_policy, embedded_json, one_line, packed
from specviz.ui.plotly_js import plotly_script

SERIES_OF_ROLE = {"map": "pair", "timed": "pair", "sweep": "sweep"}  # every other role stands side by side


def export_exit_page(parts: Sequence[tuple[str, Sequence[Event]]]) -> str:
    """The page of a board.

    Args:
        parts: (role, whole trace) of each run, in the board's own order: map, timed, the sweep, then those side by side.
    """
    started = parts[0][1][0]
    script = "\n".join([board_script(), board_file_host_script(), "SpecViz.hostBoardInFile(document);"])
    return PAGE.substitute(
        policy=content_security_policy(script, plotly_script()),
        version=html.escape(__version__),
        title=html.escape(f"{one_line(started['target']['name'])}: early exit, recorded"),
        css=file_page_css() + board_css(),
        about=html.escape(_about(started)),
        trace=embedded_json(_stream(parts)),
        plotly=packed(plotly_script()),
        script=script,
    )


def _stream(parts: Sequence[tuple[str, Sequence[Event]]]) -> list[dict]:
    stream = []
    for name in ("pair", "sweep", "beside"):
        series = [(role, events) for role, events in parts if SERIES_OF_ROLE.get(role, "beside") == name]
        if not series:
            continue
        stream.append(series_mark(name, [role for role, _ in series], EMBEDDED_TARGET))
        for role, events in series:
            stream += [part_mark(role), *events]
    return stream


def _about(started: Event) -> str:
    prompt = shortened(one_line(started["prompt"]["text"]), LONGEST_PROMPT)
    return (
        f"A recording of {one_line(started['target']['name'])} leaving early on “{prompt}”, made with SpecViz on "
        f"{one_line(started['created'])[:10]}. It works from this file alone: nothing is loaded and nothing is sent."
    )
