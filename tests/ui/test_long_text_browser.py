"""Thousands of tokens: the text stays complete, and a step costs no more than at the beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.ui.long_runs import long_run

pytestmark = pytest.mark.browser

OpenStage = Callable[..., Any]
MOST_CHIPS = 400
ACTIONS = {
    "step": "stage.commands.stepBack()",
    "round": "stage.commands.roundBack()",
    "scrub": "stage.commands.scrub((i * 7919) % rounds)",
    "ends": "i % 2 ? stage.commands.goToEnd() : stage.commands.reset()",
}
SECONDS = """async ([times, action]) => {
    const act = new Function("i", "rounds", action);
    const rounds = Number(stage.node.dataset.rounds);
    const taken = [];
    for (let i = 0; i < times; i += 1) {
        await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
        const began = performance.now();
        act(i, rounds);
        document.body.offsetHeight;
        taken.push(performance.now() - began);
    }
    return taken.sort((a, b) => a - b);
}"""
FRAMES = "async () => { for (let i = 0; i < 4; i += 1) await new Promise((r) => requestAnimationFrame(() => setTimeout(r))); }"


@pytest.fixture
def page(open_stage: OpenStage) -> Any:
    page = open_stage(long_run(5000), reduced_motion="reduce")
    page.evaluate("stage.commands.goToEnd()")
    return page


def shown_text(page: Any) -> str:
    return page.evaluate(
        "[...document.querySelectorAll('.sv-chips > .sv-lines')].map((block) => block.dataset.plain ? block.textContent"
        " : [...block.querySelectorAll('.sv-token')].map((node) => node.textContent).join('')).join('')"
    )


def visible(text: str) -> str:
    return text.replace(" ", "·").replace("\n", "⏎")


def test_all_of_the_text_is_there_and_few_chips(page: Any):
    page.evaluate(FRAMES)
    events = long_run(5000)
    texts = [
        token["text"]
        for event in events
        if event["type"] == "round"
        for token in event["draft"]
        if token["status"] == "accepted"
    ]
    assert len(texts) > 3000
    assert page.locator(".sv-chips .sv-chip").count() < MOST_CHIPS
    ids = page.evaluate("document.querySelectorAll('.sv-chips > .sv-lines').length")
    assert ids > 20
    everything = page.evaluate(
        "(events) => SpecViz.reducer.fold(events).tokens.map((token) => token.text).join('')", events
    )
    assert visible(shown_text(page)) == visible(everything)


def test_what_comes_into_sight_turns_to_chips(page: Any):
    page.evaluate("document.querySelector('.sv-text-scroll').scrollTop = 0")
    page.wait_for_function("!document.querySelector('.sv-chips > .sv-lines').dataset.plain")
    page.evaluate(FRAMES)
    assert page.locator(".sv-chips .sv-chip").count() < MOST_CHIPS


def test_the_keyboard_reaches_the_first_token_and_the_inspector(page: Any):
    page.locator(".sv-chips [tabindex='0']").focus()
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.dataset.token") == "1.0"
    page.keyboard.press("Enter")
    assert page.locator("dialog.sv-inspector").is_visible()


def test_a_reader_who_scrolled_up_is_left_there(page: Any):
    page.evaluate("stage.commands.roundBack(); stage.commands.roundBack()")
    page.evaluate(FRAMES)
    page.evaluate("document.querySelector('.sv-text-scroll').scrollTop = 400")
    page.evaluate(FRAMES)
    before = page.evaluate("document.querySelector('.sv-text-scroll').scrollTop")
    page.evaluate("stage.commands.roundForward()")
    assert page.evaluate("document.querySelector('.sv-text-scroll').scrollTop") == pytest.approx(before, abs=40)


@pytest.mark.parametrize("action", ACTIONS)
def test_no_action_freezes_the_page(page: Any, action: str):
    taken = page.evaluate(SECONDS, [20, ACTIONS[action]])
    assert taken[0] < 50  # milliseconds; the quickest, as the machine may be busy with other things
    assert taken[len(taken) // 2] < 250
