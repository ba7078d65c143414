"""The controls of the Watch tab: what to ask, how to decode, and which recording to open."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from specviz.presets import Pair, Preset
from specviz.ui.recordings import Recording

MAX_PROMPT_CHARS = 20_000
MAX_K = 12
MAX_NEW_TOKENS = 512
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


def build_ask(lessons: tuple[Preset, ...]) -> dict[str, gr.Component | None]:
    """The prompt, Run and Stop, and the lessons that fill them in; by the names of `Controls`."""
    parts: dict[str, gr.Component | None] = {"lesson": None, "lesson_text": None}
    with gr.Column(elem_id="sv-ask", elem_classes="sv-panel"):
        parts["prompt"] = gr.Textbox(
            lessons[0].prompt if lessons else DEFAULT_PROMPT,
            label="Prompt", lines=4, max_lines=5, max_length=MAX_PROMPT_CHARS, elem_id="sv-prompt",
        )  # fmt: skip
        with gr.Row(elem_id="sv-go"):
            parts["run"] = gr.Button("Run", variant="primary", elem_id="sv-run")
            parts["stop"] = gr.Button("Stop", variant="secondary", interactive=False, elem_id="sv-stop")
        if lessons:
            choices = [(lesson.title, lesson.name) for lesson in lessons]
            parts["lesson"] = gr.Radio(choices, value=lessons[0].name, label="Lesson", elem_id="sv-lesson")
            parts["lesson_text"] = gr.Markdown(lessons[0].lesson, elem_id="sv-lesson-text")
    return parts


def build_settings(pairs: tuple[Pair, ...], recordings: tuple[Recording, ...]) -> dict[str, gr.Component | None]:
    """Everything else, by the names of `Controls`."""
    parts: dict[str, gr.Component | None] = {"recording": None}
    with gr.Column(elem_id="sv-settings", elem_classes="sv-panel"):
        choices = drafter_choices(pairs[0])
        parts["drafter"] = gr.Radio(choices, value=choices[0][1], label="Drafter", elem_id="sv-drafter")
        parts["k"] = gr.Slider(1, MAX_K, 4, step=1, label="k, draft tokens per round", elem_id="sv-k")
        parts["k_auto"] = gr.Checkbox(False, label="k auto: draft while the drafter is sure", elem_id="sv-k-auto")
        parts["check"] = gr.Checkbox(True, label="Compare with plain decoding", elem_id="sv-check")
        with gr.Accordion("More settings", open=False, elem_id="sv-more"):
            parts["temperature"] = gr.Slider(0, 2, 0, step=0.1, label="Temperature (0 is greedy)", elem_id="sv-temperature")
            parts["max_new_tokens"] = gr.Slider(1, MAX_NEW_TOKENS, 64, step=1, label="New tokens", elem_id="sv-tokens")
            parts["seed"] = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**31 - 1, elem_id="sv-seed")
            parts["raw"] = gr.Checkbox(False, label="Raw prompt (no chat template)", elem_id="sv-raw")
            pair_choices = [(f"{pair.title}, {_memory(pair)}", pair.name) for pair in pairs]
            parts["pair"] = gr.Radio(pair_choices, value=pairs[0].name, label="Models", elem_id="sv-pair")
        with gr.Accordion("Recordings", open=False, elem_id="sv-recordings"):
            if recordings:
                titles = [(recording.title, recording.name) for recording in recordings]
                parts["recording"] = gr.Radio(titles, value=recordings[0].name, label="Shipped with SpecViz", elem_id="sv-recording")
            parts["upload"] = gr.UploadButton("Open a trace file (.jsonl)", size="sm", elem_id="sv-upload")
    return parts


def _memory(pair: Pair) -> str:
    return f"{pair.weight_bytes() / 1e9:.1f} GB"
