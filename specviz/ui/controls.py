"""The controls of the Watch tab: what to ask, how to decode, and which recording to open."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gradio as gr

from specviz.config import SURE_OF_THEMSELVES, RunSettings
from specviz.presets import EMBEDDED_TARGET, Pair, Preset, find_pair
from specviz.ui.recordings import Recording
from specviz.ui.run_request import (
    DRAFT_PRECISIONS,
    MAX_K,
    MAX_NEW_TOKENS,
    MAX_NGRAM,
    MAX_PROMPT_CHARS,
    OWN_PAIR,
    control_values,
    draft_precisions,
    drafter_kinds,
)

DRAFTER_WORDS = {
    "draft_head": "Draft head",
    "draft_model": "Draft model",
    "prompt_lookup": "Prompt lookup",
    "early_exit": "Early exit",
    "none": "None (plain)",
}

PRECISION_WORDS = {"auto": "As shipped (int8 on x86)"}  # the others are called what they are

MOST_AUTO = RunSettings().max_draft_tokens
NO_AUTO = {
    "prompt_lookup": "Not for prompt lookup: what it finds has no probability to be sure by.",
    "none": "Nothing is drafted.",
}

# Beyond this the browser takes no more; between it and MAX_PROMPT_CHARS the page says how much too long it is.
LONGEST_TYPED = 10 * MAX_PROMPT_CHARS
OWN_DRAFTER_CHOICES = [(word, kind) for kind, word in DRAFTER_WORDS.items()]

Parts = dict[str, gr.Component | None]


@dataclass(frozen=True, slots=True)
class Controls:
    """The components. `values` are those that make up a request, by the names of `run_request.CONTROL_NAMES`."""

    values: dict[str, gr.Component]
    run: gr.Button
    follow_up: gr.Button
    stop: gr.Button
    lesson: gr.Radio | None
    lesson_text: gr.Markdown | None
    recording: gr.Radio | None
    upload: gr.UploadButton


def build_controls(
    pairs: tuple[Pair, ...],
    lessons: tuple[Preset, ...],
    recordings: tuple[Recording, ...],
    allow_own: bool = False,
) -> Controls:
    """All controls, in two columns; the first lesson is filled in."""
    first = control_values(lessons[0] if lessons else None, pairs[0])
    with gr.Column(elem_id="sv-ask", elem_classes="sv-panel"):
        prompt = gr.Textbox(
            first["prompt"], label="Prompt", lines=4, max_lines=5, max_length=LONGEST_TYPED, elem_id="sv-prompt"
        )
        with gr.Row(elem_id="sv-go"):
            run = gr.Button("Run", variant="primary", elem_id="sv-run")
            follow_up = gr.Button("Follow up", variant="secondary", elem_id="sv-follow-up")
            stop = gr.Button("Stop", variant="secondary", elem_id="sv-stop")
    with gr.Column(elem_id="sv-settings", elem_classes="sv-panel"):
        lesson = _lessons(lessons)
        values = {"prompt": prompt, **_drafting(first)}
        with gr.Accordion("More settings", open=False, elem_id="sv-more"):
            values |= {
                **_asking(first),
                **_sampling(first),
                **_drafter_details(first),
                **_models(first, pairs, allow_own),
            }
        with gr.Accordion("Recordings", open=False, elem_id="sv-recordings"):
            recording = _recordings(recordings)
    return Controls(values=values, run=run, follow_up=follow_up, stop=stop, **lesson, **recording)


def drafter_choices(pair: Pair) -> list[tuple[str, str]]:
    """Words and kinds of what may draft for a pair."""
    return [(DRAFTER_WORDS[kind], kind) for kind in drafter_kinds(pair)]


def pair_choices(pairs: tuple[Pair, ...]) -> list[tuple[str, str]]:
    """Words and names of the models that may be chosen."""
    return [(f"{pair.title}, {pair.weight_bytes() / 1e9:.1f} GB", pair.name) for pair in pairs]


def precision_control(pair_name: str, drafter: str, precision: str) -> dict[str, Any]:
    """What the control of the draft's weights shows beside a drafter; it is not there for one without weights."""
    own = draft_precisions(pair_name, drafter)
    choices = own or DRAFT_PRECISIONS
    words = PRECISION_WORDS if pair_name == EMBEDDED_TARGET else {"auto": "Automatic"}
    return {
        "choices": [(words.get(name, name), name) for name in choices],
        "value": precision if precision in choices else choices[0],
        "visible": bool(own),
    }


def k_control(is_auto: bool) -> dict[str, Any]:
    """What the control of k says: with k auto its number means nothing."""
    per_round = "draft tokens per round"
    return {
        "label": f"k auto: up to {MOST_AUTO} {per_round}" if is_auto else f"k, {per_round}",
        "interactive": not is_auto,
    }


def auto_control(drafter: str) -> dict[str, Any]:
    """What k auto says beside a drafter; it is no choice for one without a confidence."""
    return {"interactive": drafter in SURE_OF_THEMSELVES, "info": NO_AUTO.get(drafter, f"Up to {MOST_AUTO} a round.")}


# A slider takes a typed number into its bounds as soon as it is left, which may be before anybody hears of it.
NOTE_TYPED = """() => document.addEventListener("input", ({ target }) => {
  const control = target.closest?.("[id^=sv-]");
  if (control) control.dataset.typed = target.value; }, true)"""


def bounds_script(slider: gr.Slider) -> str:
    """The script that says so where a number is typed that the slider will not take as it is."""
    low, high = json.dumps(slider.minimum), json.dumps(slider.maximum)
    return f"""(value) => {{
value = document.getElementById({json.dumps(slider.elem_id)})?.dataset.typed ?? value;
const taken = Math.min({high}, Math.max({low}, Number(value)));
const typed = value === null || value === "" ? "An empty field" : value;
const note = Number(typed) === taken ? "" : `${{typed}} does not go here: give a number from {low} to {high}. It becomes ${{taken}}.`;
return {{ __type__: "update", info: note }}; }}"""


def _lessons(lessons: tuple[Preset, ...]) -> Parts:
    if not lessons:
        return {"lesson": None, "lesson_text": None}
    choices = [(lesson.title, lesson.name) for lesson in lessons]
    return {
        "lesson": gr.Radio(choices, value=lessons[0].name, label="Lesson", elem_id="sv-lesson"),
        "lesson_text": gr.Markdown(lessons[0].lesson, elem_id="sv-lesson-text"),
    }


def _drafting(first: dict[str, Any]) -> dict[str, gr.Component]:
    drafters = drafter_choices(find_pair(first["pair"]))
    return {
        "drafter": gr.Radio(drafters, value=first["drafter"], label="Drafter", elem_id="sv-drafter"),
        "k": gr.Slider(1, MAX_K, first["k"], step=1, elem_id="sv-k", **k_control(first["k_auto"])),
        "k_auto": gr.Checkbox(
            first["k_auto"],
            label="k auto: draft while the drafter is sure",
            elem_id="sv-k-auto",
            **auto_control(first["drafter"]),
        ),
        "check": gr.Checkbox(first["check"], label="Compare with plain decoding", elem_id="sv-check"),
    }


# Numbers have no bounds here: what is out of bounds is refused by `request_from`, with a sentence.


def _asking(first: dict[str, Any]) -> dict[str, gr.Component]:
    return {
        "system": gr.Textbox(
            first["system"],
            label="System message (empty: the model's own)",
            lines=1,
            max_lines=3,
            max_length=LONGEST_TYPED,
            elem_id="sv-system",
        ),
        "raw": gr.Checkbox(first["raw"], label="Raw prompt, no chat template", elem_id="sv-raw"),
    }


def _sampling(first: dict[str, Any]) -> dict[str, gr.Component]:
    return {
        "temperature": gr.Slider(
            0, 2, first["temperature"], step=0.1, label="Temperature, 0 is greedy", elem_id="sv-temperature"
        ),
        "top_p": gr.Slider(0.05, 1, first["top_p"], step=0.05, label="Top-p, 1 is off", elem_id="sv-top-p"),
        "top_k": gr.Number(first["top_k"], label="Top-k, 0 is off", elem_id="sv-top-k"),
        "max_new_tokens": gr.Slider(
            1, MAX_NEW_TOKENS, first["max_new_tokens"], step=1, label="New tokens", elem_id="sv-tokens"
        ),
        "seed": gr.Number(first["seed"], label="Seed", elem_id="sv-seed"),
    }


def _drafter_details(first: dict[str, Any]) -> dict[str, gr.Component]:
    return {
        "draft_precision": gr.Radio(
            **precision_control(first["pair"], first["drafter"], first["draft_precision"]),
            label="Draft weights",
            elem_id="sv-draft-precision",
        ),
        "lookup_first": gr.Checkbox(
            first["lookup_first"],
            label="Draft head or model: look up first",
            info="Copies from the text where it repeats, and drafts where it does not.",
            elem_id="sv-lookup-first",
        ),
        "max_ngram": gr.Slider(
            1, MAX_NGRAM, first["max_ngram"], step=1, label="Prompt lookup: longest match", elem_id="sv-max-ngram"
        ),
        "min_ngram": gr.Slider(
            1, MAX_NGRAM, first["min_ngram"], step=1, label="Prompt lookup: shortest match", elem_id="sv-min-ngram"
        ),
        "exit_layer": gr.Number(
            first["exit_layer"], label="Early exit: layer, 0 is a third of them", elem_id="sv-exit-layer"
        ),
    }


def _models(first: dict[str, Any], pairs: tuple[Pair, ...], allow_own: bool) -> dict[str, gr.Component]:
    choices = pair_choices(pairs)
    if not allow_own:
        return {"pair": gr.Radio(choices, value=first["pair"], label="Models", elem_id="sv-pair")}
    return {
        "pair": gr.Radio([*choices, ("Own folders", OWN_PAIR)], value=first["pair"], label="Models", elem_id="sv-pair"),
        "own_target": gr.Textbox("", label="Own folders: target", max_length=1000, elem_id="sv-own-target"),
        "own_draft": gr.Textbox(
            "", label="Own folders: draft (may stay empty)", max_length=1000, elem_id="sv-own-draft"
        ),
    }


def _recordings(recordings: tuple[Recording, ...]) -> Parts:
    titles = [(recording.title, recording.name) for recording in recordings]
    return {
        "recording": gr.Radio(titles, value=titles[0][1], label="Shipped with SpecViz", elem_id="sv-recording")
        if titles
        else None,
        "upload": gr.UploadButton("Open a trace file (.jsonl)", size="sm", elem_id="sv-upload"),
    }
