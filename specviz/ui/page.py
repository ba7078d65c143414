"""The page: its tabs, what is wired to what, and how it is served. Building it loads no weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from specviz.presets import Preset, find_pair, load_lessons, load_pairs
from specviz.ui.address import FORGET_RECORDING, IN_ADDRESS, READ_ADDRESS, keep_lesson, write_address
from specviz.ui.controls import (
    NOTE_TYPED,
    Controls,
    auto_control,
    bounds_script,
    build_controls,
    drafter_choices,
    k_control,
    precision_control,
)
from specviz.ui.exit_handlers import ExitHandlers, ExitRunFactory
from specviz.ui.exit_tab import TAB, build_exit_tab, follow_tabs
from specviz.ui.handlers import Handlers, RunFactory
from specviz.ui.messages import RECORDING, message
from specviz.ui.model_shelf import ModelShelf
from specviz.ui.plotly_js import plotly_route
from specviz.ui.recorded_series import RECORDED_DIR
from specviz.ui.recordings import RECORDINGS_DIR, load_recordings
from specviz.ui.run_request import WITHOUT_AUTO, control_values
from specviz.ui.stage import stage_component
from specviz.ui.theme import PAGE_CSS, page_theme

TITLE = "SpecViz"
OWN_MODELS_VARIABLE = "SPECVIZ_ALLOW_OWN_MODELS"
HEADER = """
<header class="sv-page-head"><h1>SpecViz</h1>
<p>A quick drafter guesses the next tokens. The target checks all of them in one pass, and keeps only what it would have said itself.</p></header>
"""
MAX_RUNS_AT_ONCE = 4
MAX_WAITING = 32
MAX_UPLOAD = "16mb"
SECONDS_BETWEEN_LOOKS = 0.02
QUICK = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
STREAMING = {"show_progress": "hidden", "api_visibility": "private"}
ENDS_AUTO = {"k": (["k_auto"],), "drafter": (["k_auto"], WITHOUT_AUTO)}  # a new value that takes it out of the address
RUNNING = {**STREAMING, "concurrency_limit": MAX_RUNS_AT_ONCE, "concurrency_id": "runs"}
DELETE_UPLOADS = (600, 3600)  # every, and older than: seconds


def build_demo(
    run_factory: RunFactory | None = None,
    recordings_dir: Path = RECORDINGS_DIR,
    allow_own: bool | None = None,
    exit_run_factory: ExitRunFactory | None = None,
    recorded_dir: Path = RECORDED_DIR,
) -> gr.Blocks:
    """The page.

    Args:
        run_factory: makes the runs; the default loads real models at the first run.
        recordings_dir: where the recorded runs are.
        allow_own: whether visitors may open model folders of this machine; the default asks the environment
            variable `OWN_MODELS_VARIABLE`, and is no.
        exit_run_factory, recorded_dir: the same two for the Early exit tab.
    """
    allow_own = os.environ.get(OWN_MODELS_VARIABLE) == "1" if allow_own is None else allow_own
    recordings, lessons = load_recordings(recordings_dir), load_lessons()
    shelf, pairs = ModelShelf(), load_pairs()
    handlers = Handlers(run_factory or shelf.open_run, recordings, lessons, allow_own)
    exit_handlers = ExitHandlers(exit_run_factory or shelf.open_exit_part, handlers.registry, recorded_dir)
    first = (
        message("first-recording", 0, recordings[0].events, source=RECORDING, done=True, recording=recordings[0].name)
        if recordings
        else ""
    )
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True, delete_cache=DELETE_UPLOADS) as demo:
        gr.HTML(HEADER, elem_id="sv-head", apply_default_css=False)
        with gr.Tabs(elem_id="sv-tabs"):
            with gr.Tab("Watch", id="watch"), gr.Row(elem_id="sv-watch"):
                controls = build_controls(pairs, lessons, recordings, allow_own)
                with gr.Column(elem_id="sv-show"):
                    stage = stage_component(first, handlers.missing_events)
            with gr.Tab("Early exit", id=TAB):
                build_exit_tab(pairs, exit_handlers, handlers, RUNNING)
        follow_tabs(demo)
        defaults = control_values(lessons[0] if lessons else None, pairs[0])
        _wire(controls, stage, handlers)
        if controls.lesson is not None:
            _wire_lessons(controls, handlers, lessons)
        if controls.recording is not None:
            _wire_recordings(controls, stage, handlers, defaults)
        _wire_address(demo, controls, stage, handlers, defaults)
        demo.unload(handlers.leave)
    demo.queue(max_size=MAX_WAITING, default_concurrency_limit=MAX_RUNS_AT_ONCE)
    # Gradio looks for new work a thousand times a second, and each look takes a core from the model.
    demo._queue.sleep_when_free = demo._queue.progress_update_sleep_when_free = SECONDS_BETWEEN_LOOKS
    return demo


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

    def follow_up(given: dict[gr.Component, Any], request: gr.Request) -> Iterator[str]:
        yield from handlers.run({name: given[component] for name, component in values.items()}, request, True)

    recording = [controls.recording] if controls.recording is not None else []

    def begin() -> list[Any]:
        return [handlers.begin(), *(None for _ in recording)]

    for triggers, start in (
        ([controls.run.click, values["prompt"].submit], run),
        ([controls.follow_up.click], follow_up),
    ):
        # May be pressed while a run goes on: the new one ends it (see `RunRegistry.register`).
        pressed = gr.on(
            triggers, begin, None, [stage, *recording], js=FORGET_RECORDING, trigger_mode="multiple", **QUICK
        )
        runs = pressed.then(
            start,
            set(values.values()),
            stage,
            trigger_mode="multiple",
            **RUNNING,
        )
        runs.failure(handlers.broke_off, None, stage, **QUICK)
    controls.stop.click(handlers.stop, None, None, **QUICK)
    values["pair"].change(handlers.choose_pair, [values["pair"], values["drafter"]], values["drafter"], **QUICK)
    for slider in (component for component in values.values() if isinstance(component, gr.Slider)):
        slider.input(None, slider, slider, js=bounds_script(slider), trigger_mode="always_last", **QUICK)
    is_k_chosen = gr.Checkbox(False, visible="hidden", elem_id="sv-k-chosen")
    for name in ("k", "k_auto"):
        values[name].input(None, None, is_k_chosen, js="() => true", **QUICK)
    values["k_auto"].change(handlers.choose_auto, values["k_auto"], values["k"], **QUICK)
    values["drafter"].input(handlers.choose_best_k, [values["drafter"], is_k_chosen], values["k_auto"], **QUICK)
    precision = [values[name] for name in ("pair", "drafter", "draft_precision")]
    values["drafter"].change(handlers.choose_drafter, precision, [values["draft_precision"], values["k_auto"]], **QUICK)
    controls.upload.upload(handlers.open_file, controls.upload, stage, **STREAMING)
    controls.upload.upload(lambda: [None for _ in recording], None, recording, js=FORGET_RECORDING, **QUICK)


def _set_to(controls: Controls, values: dict[str, Any]) -> dict[gr.Component, Any]:
    """Updates that make the controls show these values."""
    drafter = gr.update(choices=drafter_choices(find_pair(values["pair"])), value=values["drafter"])
    precision = gr.update(**precision_control(*(values[name] for name in ("pair", "drafter", "draft_precision"))))
    k = gr.update(**k_control(values["k_auto"]), value=values["k"], info="")
    auto = gr.update(**auto_control(values["drafter"]), value=values["k_auto"])
    sliders = {
        name: gr.update(value=values[name], info="")
        for name, component in controls.values.items()
        if isinstance(component, gr.Slider)
    }
    updates = {**values, **sliders, "drafter": drafter, "draft_precision": precision, "k": k, "k_auto": auto}
    return {controls.values[name]: value for name, value in updates.items()}


def _wire_lessons(controls: Controls, handlers: Handlers, lessons: tuple[Preset, ...]) -> None:
    def choose(name: str) -> dict[gr.Component, Any]:
        sentence, values = handlers.choose_lesson(name)
        return {controls.lesson_text: sentence, **_set_to(controls, values)}

    shown = [controls.lesson, controls.lesson_text]
    controls.lesson.select(choose, controls.lesson, [controls.lesson_text, *controls.values.values()], **QUICK)
    prompts = {lesson.name: lesson.prompt for lesson in lessons}
    prompt = controls.values["prompt"]
    prompt.change(None, [prompt, *shown], shown, js=keep_lesson(prompts), trigger_mode="always_last")


def _wire_recordings(controls: Controls, stage: gr.HTML, handlers: Handlers, defaults: dict[str, Any]) -> None:
    """A recording that is chosen is shown, and the controls follow it: Run then asks the same again."""

    def follow(name: str) -> dict[gr.Component, Any]:
        return _set_to(controls, handlers.values_of_recording(name, defaults))

    controls.recording.select(handlers.open_recording, controls.recording, stage, **STREAMING)
    controls.recording.select(follow, controls.recording, list(controls.values.values()), **QUICK)


def _wire_address(
    demo: gr.Blocks, controls: Controls, stage: gr.HTML, handlers: Handlers, defaults: dict[str, Any]
) -> None:
    """A link sets the controls when the page opens; a control that is changed changes the address."""
    address = gr.Textbox(visible="hidden", elem_id="sv-address")

    def open_address(text: str) -> dict[gr.Component, Any]:
        shown, linked = handlers.open_address(text, defaults)
        updates = _set_to(controls, linked.values)
        if linked.lesson:
            updates |= {controls.lesson: linked.lesson, controls.lesson_text: handlers.choose_lesson(linked.lesson)[0]}
        if linked.recording:
            updates[controls.recording] = linked.recording
        return updates if shown is None else {**updates, stage: shown}

    choices = [part for part in (controls.lesson, controls.lesson_text, controls.recording) if part is not None]
    # In two steps, so that a page without a link asks nothing of the server, and touches no control while it opens.
    demo.load(None, None, address, js=READ_ADDRESS)
    demo.load(None, None, None, js=NOTE_TYPED)
    address.change(open_address, address, [stage, *choices, *controls.values.values()], **QUICK)
    for name in IN_ADDRESS:
        component = controls.values[name]
        # A textbox calls it an input only when a key was pressed; a paste is a change.
        used = component.change if isinstance(component, gr.Textbox) else component.input
        bounds = (component.minimum, component.maximum) if isinstance(component, gr.Slider) else None
        script = write_address(name, *ENDS_AUTO.get(name, ()), bounds=bounds)
        used(None, component, None, js=script, trigger_mode="always_last")
    if controls.lesson is not None:
        controls.lesson.input(None, controls.lesson, None, js=write_address("lesson", forget=IN_ADDRESS))
    if controls.recording is not None:
        forget = ("round", "lesson", *IN_ADDRESS)
        controls.recording.input(None, controls.recording, None, js=write_address("recording", forget=forget))
