"""The page: its tabs, what is wired to what, and how it is served. Building it loads no weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from specviz.presets import load_lessons, load_pairs
from specviz.ui.controls import Controls, build_ask, build_settings
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
            controls = Controls(**build_ask(lessons), **build_settings(load_pairs(), lessons, recordings))
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
    quick = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    streaming = {"show_progress": "hidden", "api_visibility": "private"}
    buttons = [controls.run, controls.stop]
    pressed = gr.on([controls.run.click, controls.prompt.submit], handlers.begin, None, [*buttons, stage], **quick)
    runs = pressed.then(
        handlers.run,
        controls.request_inputs,
        stage,
        concurrency_limit=MAX_RUNS_AT_ONCE,
        concurrency_id="runs",
        **streaming,
    )
    runs.failure(handlers.broke_off, None, stage, **quick)
    runs.then(handlers.end, None, buttons, **quick)
    controls.stop.click(handlers.stop, None, None, **quick)
    controls.upload.upload(handlers.open_file, controls.upload, stage, **streaming)
    controls.pair.change(handlers.choose_pair, [controls.pair, controls.drafter], controls.drafter, **quick)
    if controls.recording is not None:
        controls.recording.select(handlers.open_recording, controls.recording, stage, **streaming)
    if controls.lesson is not None:
        filled = [
            controls.lesson_text, controls.prompt, controls.raw, controls.pair, controls.drafter, controls.k, controls.k_auto,
            controls.temperature, controls.max_new_tokens, controls.seed,
        ]  # fmt: skip
        controls.lesson.select(handlers.choose_lesson, controls.lesson, filled, **quick)
