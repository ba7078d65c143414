"""The stage as a Gradio component: a constant template, and scripts that draw what arrives as its value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gradio as gr

from specviz.ui.bundle import gradio_host_script, stage_css, stage_script
from specviz.ui.plotly_js import PLOTLY_ADDRESS

TEMPLATE = '<div class="sv-root"></div>'
START = "SpecViz.hostInGradio(element, props, watch, server, {own});"


def stage_component(value: str, missing_events: Callable[[Any], str | None]) -> gr.HTML:
    """The stage.

    Args:
        value: the message that it shows first ("" for none).
        missing_events: asked by the stage for events that did not arrive; takes {"run", "from"}.
    """

    def missing_events_of(payload: Any) -> str | None:  # Gradio marks what it may call, and a method takes no mark
        return missing_events(payload)

    own = json.dumps({"css": stage_css(), "plotly": PLOTLY_ADDRESS})
    return gr.HTML(
        value,
        html_template=TEMPLATE,
        js_on_load="\n".join([stage_script(), gradio_host_script(), START.format(own=own)]),
        apply_default_css=False,
        server_functions=[missing_events_of],
        elem_id="sv-stage",
    )
