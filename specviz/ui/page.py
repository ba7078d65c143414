"""The page: its tabs, what is wired to what, and how it is served. Building it loads no weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from specviz.presets import load_lessons, load_pairs
from specviz.ui.controls import Controls, build_controls
from specviz.ui.handlers import Handlers, RunFactory
from specviz.ui.messages import RECORDING, message
from specviz.ui.model_shelf import ModelShelf
from specviz.ui.plotly_js import plotly_route
from specviz.ui.recordings import RECORDINGS_DIR, load_recordings
from specviz.ui.stage import stage_component
from specviz.ui.theme import PAGE_CSS, page_theme

TITLE = "SpecViz"
HEADER = """
<header class="sv-page-head"><h1>SpecViz</h1>
<p>A quick drafter guesses the next tokens. The target checks all of them in one pass, and only what it would have said itself is kept.</p></header>
"""
MAX_RUNS_AT_ONCE = 4
MAX_WAITING = 32
MAX_UPLOAD = "16mb"
QUICK = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
STREAMING = {"show_progress": "hidden", "api_visibility": "private"}
DELETE_UPLOADS = (600, 3600)  # every, and older than: seconds


def build_demo(run_factory: RunFactory | None = None, recordings_dir: Path = RECORDINGS_DIR) -> gr.Blocks:
    """The page.

    Args:
        run_factory: makes the runs; the default loads real models at the first run.
        recordings_dir: where the recorded runs are.
    """
    recordings, lessons = load_recordings(recordings_dir), load_lessons()
    handlers = Handlers(run_factory or ModelShelf().open_run, recordings, lessons)
    first = message("first-recording", 0, recordings[0].events, source=RECORDING, done=True) if recordings else ""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=DELETE_UPLOADS) as demo:
        gr.HTML(HEADER, elem_id="sv-head", apply_default_css=False)
        with gr.Tabs(), gr.Tab("Watch", id="watch"), gr.Row(elem_id="sv-watch"):
            controls = build_controls(load_pairs(), lessons, recordings)
            with gr.Column(elem_id="sv-show"):
                stage = stage_component(first, handlers.missing_events)
        _wire(controls, stage, handlers)
        demo.unload(handlers.leave)
    return demo.queue(max_size=MAX_WAITING, default_concurrency_limit=MAX_RUNS_AT_ONCE)


def launch_options() -> dict[str, Any]:
    """How the page is served: plotly.js from here, no history, no monitoring, small uploads, no links that leave it."""
    return {
        "theme": page_theme(),
        "css": PAGE_CSS,
        "footer_links": ["settings"],
        "run_history": False,
        "enable_monitoring": False,
        "max_file_size": MAX_UPLOAD,
        "show_error": False,
        "ssr_mode": False,
        "share": False,
        "app_kwargs": {"routes": [plotly_route()]},
    }


def _wire(controls: Controls, stage: gr.HTML, handlers: Handlers) -> None:
    values = controls.values

    def run(given: dict[gr.Component, Any], request: gr.Request) -> Iterator[str]:
        yield from handlers.run({name: given[component] for name, component in values.items()}, request)

    # Run may be pressed while a run goes on: the new one ends it (see `RunRegistry.register`).
    pressed = gr.on(
        [controls.run.click, values["prompt"].submit], handlers.begin, None, stage, trigger_mode="multiple", **QUICK
    )
    runs = pressed.then(
        run,
        set(values.values()),
        stage,
        trigger_mode="multiple",
        concurrency_limit=MAX_RUNS_AT_ONCE,
        concurrency_id="runs",
        **STREAMING,
    )
    runs.failure(handlers.broke_off, None, stage, **QUICK)
    controls.stop.click(handlers.stop, None, None, **QUICK)
    values["pair"].change(handlers.choose_pair, [values["pair"], values["drafter"]], values["drafter"], **QUICK)
    controls.upload.upload(handlers.open_file, controls.upload, stage, **STREAMING)
    if controls.recording is not None:
        controls.recording.select(handlers.open_recording, controls.recording, stage, **STREAMING)
    if controls.lesson is not None:
        _wire_lessons(controls, handlers)


def _wire_lessons(controls: Controls, handlers: Handlers) -> None:
    def choose(name: str) -> dict[gr.Component, Any]:
        sentence, settings = handlers.choose_lesson(name)
        return {controls.lesson_text: sentence, **{controls.values[key]: value for key, value in settings.items()}}

    controls.lesson.select(choose, controls.lesson, [controls.lesson_text, *controls.values.values()], **QUICK)
