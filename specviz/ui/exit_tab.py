"""The Early exit tab: what to ask on the left, the board beside it, and what is wired to what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import gradio as gr

from specviz.early_exit.exit_settings import ExitSettings
from specviz.presets import Pair
from specviz.ui.bundle import address_script
from specviz.ui.controls import LONGEST_TYPED, pair_choices
from specviz.ui.exit_board import board_component
from specviz.ui.exit_handlers import ExitHandlers
from specviz.ui.exit_request import DEFAULT_NEW_TOKENS, DEFAULT_PROMPT, HEADS_WORDS
from specviz.ui.handlers import Handlers
from specviz.ui.run_request import MAX_NEW_TOKENS

INTRODUCTION = (
    "An easy token may leave the model before its last layer. **Run** decodes twice: once through every layer, reading out "
    "each (the map), and once with real exits (timed)."
)
# The board knows the exit rule; the last input is replaced by it on the way to the server.
WITH_THE_RULE = """(...given) => {
  const board = document.querySelector("#sv-exit .sv-board");
  return [...given.slice(0, -1), board ? board.dataset.choices || "" : ""];
}"""
RULE_NAMES = ("measure", "threshold", "min_layer")
TAB = "early-exit"
# A link with ?tab=early-exit opens here, and who turns to this tab has such a link.
FOLLOW_TABS = f"""() => {{ {address_script()}
const tabs = document.querySelector("#sv-tabs");
const noteTab = ({{ target }}) => {{
  const chosen = target.closest("[role=tab]")?.dataset.tabId;
  if (chosen) SpecViz.address.write({{ tab: chosen === "{TAB}" ? chosen : null }});
}};
tabs.addEventListener("click", noteTab);
if (SpecViz.address.read(location).tab === "{TAB}") tabs.querySelector("[role=tab][data-tab-id={TAB}]")?.click(); }}"""
QUICK = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def build_exit_tab(
    pairs: tuple[Pair, ...], handlers: ExitHandlers, page_handlers: Handlers, streaming: dict[str, Any]
) -> None:
    """Everything inside the tab.

    Args:
        page_handlers: of the page: what is missing of a run, and what to say when one breaks off.
        streaming: how its runs are queued, the same as the page's other runs.
    """
    with gr.Row(elem_id="sv-leave"):
        with gr.Column(elem_id="sv-exit-ask", elem_classes="sv-panel"):
            values, run, stop = _controls(pairs)
        with gr.Column(elem_id="sv-exit-show"):
            board = board_component(page_handlers.missing_events, handlers.recorded, handlers.page_of)
    _wire(values, run, stop, board, handlers, page_handlers, streaming)


def follow_tabs(demo: gr.Blocks) -> None:
    """The page's address names the tab that is open, unless it is the first one."""
    demo.load(None, None, None, js=FOLLOW_TABS)


def _controls(pairs: tuple[Pair, ...]) -> tuple[dict[str, gr.Component], gr.Button, gr.Button]:
    prompt = gr.Textbox(
        DEFAULT_PROMPT, label="Prompt", lines=4, max_lines=5, max_length=LONGEST_TYPED, elem_id="sv-exit-prompt"
    )
    with gr.Row(elem_id="sv-exit-go"):
        run = gr.Button("Run", variant="primary", elem_id="sv-exit-run")
        stop = gr.Button("Stop", variant="secondary", elem_id="sv-exit-stop")
    gr.Markdown(INTRODUCTION, elem_id="sv-exit-about")
    values = {
        "prompt": prompt,
        "heads": gr.Radio(
            [(word, kind) for kind, word in HEADS_WORDS.items()],
            value="auto",
            label="Exit heads",
            elem_id="sv-exit-heads",
        ),
        "max_new_tokens": gr.Slider(
            1, MAX_NEW_TOKENS, DEFAULT_NEW_TOKENS, step=1, label="New tokens", elem_id="sv-exit-tokens"
        ),
    }
    with gr.Accordion("More settings", open=False, elem_id="sv-exit-more"):
        values |= {
            "system": gr.Textbox(
                "", label="System message (empty: the model's own)", lines=1, max_lines=3, max_length=LONGEST_TYPED
            ),
            "raw": gr.Checkbox(False, label="Raw prompt, no chat template"),
            "temperature": gr.Slider(
                0, 2, 0, step=0.1, label="Temperature, 0 is greedy", elem_id="sv-exit-temperature"
            ),
            "seed": gr.Number(0, label="Seed", elem_id="sv-exit-seed"),
            "pair": gr.Radio(pair_choices(pairs), value=pairs[0].name, label="Models", elem_id="sv-exit-pair"),
        }
    return values, run, stop


def _wire(
    values: dict[str, gr.Component],
    run: gr.Button,
    stop: gr.Button,
    board: gr.HTML,
    handlers: ExitHandlers,
    page_handlers: Handlers,
    streaming: dict[str, Any],
) -> None:
    rule = gr.Textbox(visible="hidden", elem_id="sv-exit-rule")

    def start(request: gr.Request, *given: Any) -> Iterator[str]:
        *settings, chosen = given
        wanted = {"series": "pair", **dict(zip(values, settings, strict=True)), **_parsed(chosen)}
        yield from handlers.run(wanted, request)

    def start_from_board(request: gr.Request, event: gr.EventData) -> Iterator[str]:
        yield from handlers.run(event._data, request)

    # May be pressed while a run goes on: the new one ends it (see `RunRegistry.register`).
    pressed = gr.on(
        [run.click, values["prompt"].submit], page_handlers.begin, None, board, trigger_mode="multiple", **QUICK
    )
    runs = pressed.then(start, [*values.values(), rule], board, js=WITH_THE_RULE, trigger_mode="multiple", **streaming)
    asked = board.run_board(start_from_board, None, board, trigger_mode="multiple", **streaming)
    for going in (runs, asked):
        going.failure(page_handlers.broke_off, None, board, **QUICK)
    stop.click(handlers.stop, None, None, **QUICK)


def _parsed(chosen: Any) -> dict[str, Any]:
    """The exit rule as the board wrote it; without a board there is the default one."""
    try:
        rule = json.loads(chosen or "null")
    except (TypeError, ValueError):
        rule = None
    usual = {"threshold": ExitSettings().threshold}
    return {name: value for name, value in (rule if isinstance(rule, dict) else usual).items() if name in RULE_NAMES}
