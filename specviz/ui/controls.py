"""The controls of the Watch tab: what to ask, how to decode, and which recording to open."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from specviz.config import RunSettings
from specviz.presets import Pair, Preset
from specviz.ui.recordings import Recording

MAX_PROMPT_CHARS = 20_000
MAX_K = 16
MAX_NEW_TOKENS = 512
MAX_SEED = 2**31 - 1
DEFAULT_PROMPT = "Write a short poem about the sea. Repeat the first line at the end."
DRAFTER_CHOICES = {
    "draft_model": "Draft model",
    "prompt_lookup": "Prompt lookup",
    "early_exit": "Early exit",
    "none": "None (plain)",
}


@dataclass(frozen=True, slots=True)
class Controls:
    """The components, by what they set."""

    prompt: gr.Textbox
    run: gr.Button
    stop: gr.Button
    lesson: gr.Radio | None
    lesson_text: gr.Markdown | None
    drafter: gr.Radio
    k: gr.Slider
    k_auto: gr.Checkbox
    check: gr.Checkbox
    temperature: gr.Slider
    max_new_tokens: gr.Slider
    seed: gr.Number
    raw: gr.Checkbox
    pair: gr.Radio
    recording: gr.Radio | None
    upload: gr.UploadButton

    @property
    def request_inputs(self) -> list[gr.Component]:
        """The inputs of `handlers.request_from`, in its order."""
        return [
            self.pair, self.prompt, self.raw, self.drafter, self.k, self.k_auto, self.temperature,
            self.max_new_tokens, self.seed, self.check,
        ]  # fmt: skip


def drafter_choices(pair: Pair) -> list[tuple[str, str]]:
    """What may draft for a pair, the best one first, and plain decoding."""
    return [(DRAFTER_CHOICES[kind], kind) for kind in (*pair.drafters, "none")]


def build_ask(lessons: tuple[Preset, ...]) -> dict[str, gr.Component]:
    """The prompt, Run and Stop; by the names of `Controls`."""
    parts: dict[str, gr.Component] = {}
    with gr.Column(elem_id="sv-ask", elem_classes="sv-panel"):
        parts["prompt"] = gr.Textbox(
            lessons[0].prompt if lessons else DEFAULT_PROMPT,
            label="Prompt", lines=4, max_lines=5, max_length=MAX_PROMPT_CHARS, elem_id="sv-prompt",
        )  # fmt: skip
        with gr.Row(elem_id="sv-go"):
            parts["run"] = gr.Button("Run", variant="primary", elem_id="sv-run")
            parts["stop"] = gr.Button("Stop", variant="secondary", interactive=False, elem_id="sv-stop")
    return parts


def build_settings(
    pairs: tuple[Pair, ...], lessons: tuple[Preset, ...], recordings: tuple[Recording, ...]
) -> dict[str, gr.Component | None]:
    """Everything else, by the names of `Controls`; the first lesson is filled in."""
    first = lessons[0] if lessons else None
    with gr.Column(elem_id="sv-settings", elem_classes="sv-panel"):
        parts = _lessons(lessons)
        parts |= _drafting(first.pair if first else pairs[0], first.run_settings() if first else RunSettings())
        with gr.Accordion("More settings", open=False, elem_id="sv-more"):
            parts |= _more(pairs, first)
        with gr.Accordion("Recordings", open=False, elem_id="sv-recordings"):
            parts |= _recordings(recordings)
    return parts


def _lessons(lessons: tuple[Preset, ...]) -> dict[str, gr.Component | None]:
    if not lessons:
        return {"lesson": None, "lesson_text": None}
    choices = [(lesson.title, lesson.name) for lesson in lessons]
    return {
        "lesson": gr.Radio(choices, value=lessons[0].name, label="Lesson", elem_id="sv-lesson"),
        "lesson_text": gr.Markdown(lessons[0].lesson, elem_id="sv-lesson-text"),
    }


def _drafting(pair: Pair, settings: RunSettings) -> dict[str, gr.Component]:
    is_auto = settings.is_adaptive
    k = 4 if is_auto else settings.num_draft_tokens
    return {
        "drafter": gr.Radio(drafter_choices(pair), value=settings.drafter, label="Drafter", elem_id="sv-drafter"),
        "k": gr.Slider(1, MAX_K, k, step=1, label="k, draft tokens per round", elem_id="sv-k"),
        "k_auto": gr.Checkbox(is_auto, label="k auto: draft while the drafter is sure", elem_id="sv-k-auto"),
        "check": gr.Checkbox(True, label="Compare with plain decoding", elem_id="sv-check"),
    }


def _more(pairs: tuple[Pair, ...], lesson: Preset | None) -> dict[str, gr.Component]:
    settings = lesson.run_settings() if lesson else RunSettings(max_new_tokens=64)
    choices = [(f"{pair.title}, {_memory(pair)}", pair.name) for pair in pairs]
    chosen = lesson.pair.name if lesson else pairs[0].name
    return {
        "temperature": gr.Slider(
            0, 2, settings.temperature, step=0.1, label="Temperature (0 is greedy)", elem_id="sv-temperature"
        ),
        "max_new_tokens": gr.Slider(
            1, MAX_NEW_TOKENS, settings.max_new_tokens, step=1, label="New tokens", elem_id="sv-tokens"
        ),
        "seed": gr.Number(settings.seed, label="Seed", precision=0, minimum=0, maximum=MAX_SEED, elem_id="sv-seed"),
        "raw": gr.Checkbox(bool(lesson and lesson.raw), label="Raw prompt (no chat template)", elem_id="sv-raw"),
        "pair": gr.Radio(choices, value=chosen, label="Models", elem_id="sv-pair"),
    }


def _recordings(recordings: tuple[Recording, ...]) -> dict[str, gr.Component | None]:
    titles = [(recording.title, recording.name) for recording in recordings]
    shipped = (
        gr.Radio(titles, value=titles[0][1], label="Shipped with SpecViz", elem_id="sv-recording") if titles else None
    )
    return {
        "recording": shipped,
        "upload": gr.UploadButton("Open a trace file (.jsonl)", size="sm", elem_id="sv-upload"),
    }


def _memory(pair: Pair) -> str:
    return f"{pair.weight_bytes() / 1e9:.1f} GB"
