"""The board of the Early exit tab as a Gradio component: a constant template, and scripts that draw what arrives."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from specviz.ui.bundle import board_css, board_gradio_host_script, board_script
from specviz.ui.plotly_js import PLOTLY_ADDRESS
from specviz.ui.stage import TEMPLATE

# The name of the board's own event stands in its host script, which is how Gradio knows it: "run_board".
START = "SpecViz.hostBoardInGradio(element, props, watch, server, trigger, {own});"


def board_component(
    missing_events: Callable[[Any], str | None],
    recorded: Callable[[], str],
    page_of_runs: Callable[[Any], dict[str, str]],
) -> gr.HTML:
    """The board.

    Args:
        missing_events: asked for events that did not arrive; takes {"run", "from"}.
        recorded: the message with the recorded runs, asked for when the tab is first opened.
        page_of_runs: takes a list of {"role", "lines"}; gives {"page"} or {"error"}.
    """

    # Gradio marks what it may call, and a method takes no mark; each takes the one thing that the script sends.
    def missing_events_of(payload: Any) -> str | None:
        return missing_events(payload)

    def recorded_runs(payload: Any) -> str:
        return recorded()

    def page_of(payload: Any) -> dict[str, str]:
        return page_of_runs(payload)

    own = json.dumps({"css": board_css(), "plotly": PLOTLY_ADDRESS})
    return gr.HTML(
        "",
        html_template=TEMPLATE,
        js_on_load="\n".join([board_script(), board_gradio_host_script(), START.format(own=own)]),
        apply_default_css=False,
        server_functions=[missing_events_of, recorded_runs, page_of],
        elem_id="sv-exit",
    )
