"""The page's address: a link sets the controls, using them changes it, and the prompt stays in the fragment."""

from __future__ import annotations

import json

import pytest

from specviz.errors import BadRequest
from specviz.presets import find_pair, load_lessons
from specviz.ui.address import values_in
from specviz.ui.run_request import control_values
from tests.ui.conftest import wait_for_stage

DEFAULTS = control_values(None, find_pair("embedded"))
LESSONS = {lesson.name: lesson for lesson in load_lessons()}


def values_of(**address: str) -> dict:
    return values_in(json.dumps(address), LESSONS, DEFAULTS)[0]


def test_settings_and_prompt_come_from_the_address():
    values = values_of(k="7", temperature="0.5", k_auto="true", check="false", prompt="Hi & bye", drafter="early_exit")
    assert values["k"] == 7 and values["temperature"] == 0.5 and values["k_auto"] and not values["check"]
    assert values["prompt"] == "Hi & bye" and values["drafter"] == "early_exit"
    assert values["seed"] == DEFAULTS["seed"]


def test_a_lesson_is_the_ground_and_settings_go_on_top():
    name, lesson = next(iter(LESSONS.items()))
    values, chosen = values_in(json.dumps({"lesson": name, "k": "2"}), LESSONS, DEFAULTS)
    assert chosen == name and values["prompt"] == lesson.prompt and values["k"] == 2


@pytest.mark.parametrize(
    "address",
    [
        {"k": "many"},
        {"k": "999"},
        {"pair": "/etc"},
        {"temperature": "nan"},
        {"pair": "own", "own_target": "/"},
        {"drafter": "x"},
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(address):
    with pytest.raises(BadRequest) as refusal:
        values_of(**address)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", '{"unknown": "1"}', '{"k": null}', "null"])
def test_nonsense_changes_nothing(text):
    assert values_in(text, LESSONS, DEFAULTS) == (DEFAULTS, None)


def test_the_script_keeps_prompts_out_of_the_query(in_node):
    body = """
        const place = { pathname: "/", search: "?k=3&prompt=leaked&__theme=dark", hash: "#prompt=kept%20here" };
        return [SpecViz.address.read(place), SpecViz.address.changed(place, { k: 5, prompt: "a&b", system: "s", round: null })];
    """
    read, changed = in_node(body)
    assert read == {"k": "3", "__theme": "dark", "prompt": "kept here"}
    assert changed == "/?k=5&prompt=leaked&__theme=dark#prompt=a%26b&system=s"


@pytest.mark.browser
def test_a_link_fills_the_controls_and_stands_at_its_round(open_page, served):
    page = open_page()
    page.goto(f"{served.url}?k=6&seed=42&round=3#prompt=From%20a%20link%20%3Cb%3E")
    wait_for_stage(page, source="recording", player="paused", round=3)
    page.wait_for_function("document.querySelector('#sv-prompt textarea')?.value === 'From a link <b>'")
    assert page.input_value("#sv-k input[type=number]") == "6"


@pytest.mark.browser
def test_using_the_page_changes_the_address(open_page, served):
    page = open_page(reduced_motion="reduce")
    page.goto(served.url)
    wait_for_stage(page, source="recording", player="paused")
    page.locator("#sv-prompt textarea").fill("Secret question")
    page.wait_for_function("location.hash.includes('Secret')")
    page.click("#sv-check input")
    page.wait_for_function("location.search.includes('check=false')")
    page.locator(".sv-stage").focus()
    page.keyboard.press("End")
    page.wait_for_function("location.search.includes('round=8')")
    assert "Secret" not in page.evaluate("location.search")


@pytest.mark.browser
def test_a_bad_link_gets_its_sentence(open_page, served):
    page = open_page()
    page.goto(f"{served.url}?k=many")
    page.wait_for_function("document.querySelector('.sv-stage')?.textContent.includes('give a number there')")
