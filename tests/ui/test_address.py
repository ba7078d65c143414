"""The page's address: a link sets the controls, using them changes it, and the prompt stays in the fragment."""

from __future__ import annotations

import json

import pytest

from specviz.presets import find_pair, load_lessons
from specviz.ui.address import TABS, Linked, read_link
from specviz.ui.exit_tab import TAB
from specviz.ui.run_request import control_values, recorded_values
from tests.ui.conftest import wait_for_stage
from tests.ui.fake_runs import started

DEFAULTS = control_values(None, find_pair("embedded"))
LESSONS = {lesson.name: lesson for lesson in load_lessons()}


RECORDED = {"early": {**DEFAULTS, "drafter": "early_exit", "prompt": "What was asked then"}}


def linked(**address: str) -> Linked:
    return read_link(json.dumps(address), LESSONS, RECORDED, DEFAULTS)


def values_of(**address: str) -> dict:
    given = linked(**address)
    assert given.problems == ()
    return given.values


def test_settings_and_prompt_come_from_the_address():
    values = values_of(k="7", temperature="0.5", k_auto="true", check="false", prompt="Hi & bye", drafter="early_exit")
    assert values["k"] == 7 and values["temperature"] == 0.5 and values["k_auto"] and not values["check"]
    assert values["prompt"] == "Hi & bye" and values["drafter"] == "early_exit"
    assert values["seed"] == DEFAULTS["seed"]


def test_a_number_for_k_in_a_link_is_meant_unless_it_says_auto_too():
    assert values_of(k="7")["k_auto"] is False
    assert values_of(k="7", k_auto="true")["k_auto"] is True
    assert values_of(seed="7")["k_auto"] == DEFAULTS["k_auto"]


def test_a_lesson_is_the_ground_and_settings_go_on_top():
    name, lesson = next(iter(LESSONS.items()))
    given = linked(lesson=name, k="2")
    assert given.lesson == name and given.values["prompt"] == lesson.prompt and given.values["k"] == 2


def test_a_recording_is_the_ground_too_and_the_drafter_follows_it():
    given = linked(recording="early", k="2")
    assert (given.recording, given.lesson) == ("early", None)
    assert given.values == {**RECORDED["early"], "k": 2, "k_auto": False}


def test_the_controls_for_a_recording_ask_what_was_asked_then():
    event = started("Say it again", drafter="early_exit")
    event["settings"] |= {"drafter": "early_exit", "num_draft_tokens": "auto", "temperature": 0.9, "exit_layer": 27}
    values = recorded_values(event, DEFAULTS)
    assert (values["prompt"], values["drafter"], values["exit_layer"]) == ("Say it again", "early_exit", 27)
    assert (values["temperature"], values["k_auto"], values["k"]) == (0.9, True, DEFAULTS["k"])


def test_what_this_page_cannot_run_of_a_recording_is_left_as_it_was():
    event = started("Say it again")
    event["settings"] |= {"num_draft_tokens": 400, "seed": 7}
    values = recorded_values(event, DEFAULTS)
    assert (values["k"], values["seed"]) == (DEFAULTS["k"], 7)


@pytest.mark.parametrize(
    "address",
    [
        {"k": "many"},
        {"k": "999"},
        {"pair": "/etc"},
        {"temperature": "nan"},
        {"pair": "own"},
        {"own_target": "/"},
        {"check": "perhaps"},
        {"tab": "zzz"},
        {"evil": "1"},
        {"drafter": "prompt_lookup", "k_auto": "true"},
        {"max_ngram": "1"},
        {"drafter": "x"},
        {"draft_precision": "int3"},
    ],
)
def test_what_cannot_be_run_gets_one_sentence_and_the_rest_is_used(address):
    given = linked(**address, seed="42", prompt="Mine")
    used = {"drafter": "prompt_lookup", "k_auto": False} if len(address) > 1 else {}
    assert given.values == {**DEFAULTS, **used, "seed": 42, "prompt": "Mine"}
    (problem,), (refused,) = given.problems, given.refused
    assert "\n" not in problem
    assert refused == list(address)[-1]


@pytest.mark.parametrize("name", ["lesson", "recording"])
def test_a_lesson_or_a_recording_that_is_not_there_is_named_with_the_choices(name):
    given = linked(**{name: "nowhere", "k": "2"})
    assert (given.lesson, given.recording, given.values["k"]) == (None, None, 2)
    (problem,) = given.problems
    assert "'nowhere'" in problem and "choose one of" in problem


@pytest.mark.parametrize("text", ["0", "77", "-1", "2.5", "", "two", "9" * 5000])
def test_a_round_that_the_recording_lacks_is_named_with_the_limit(text: str):
    num_rounds = {"first": 11, "early": 40}
    given = read_link(json.dumps({"round": text}), LESSONS, RECORDED, DEFAULTS, num_rounds)
    (problem,) = given.problems
    assert given.refused == ("round",) and "from 1 to 11" in problem and text[:40] in problem and len(problem) < 200
    in_its_own = {"round": "40", "recording": "early"}
    assert read_link(json.dumps(in_its_own), LESSONS, RECORDED, DEFAULTS, num_rounds).problems == ()


def test_names_that_mean_nothing_are_told_in_one_sentence():
    given = linked(**{f"evil{number}": "<b>" * 20 for number in range(900)}, seed="42")
    (problem,) = given.problems
    assert "evil0='<b>" in problem and "895 more" in problem and "it knows only tab, lesson" in problem
    assert len(problem) < 1000 and len(given.refused) == 900


def test_the_tabs_of_a_link_are_those_of_the_page():
    assert TABS == ("watch", TAB)


@pytest.mark.parametrize(
    ("drafter", "is_auto"), [("draft_model", True), ("early_exit", True), ("prompt_lookup", False)]
)
def test_a_drafter_in_a_link_brings_its_best_k_unless_the_link_names_one(drafter: str, is_auto: bool):
    defaults = {**DEFAULTS, "k_auto": not is_auto}
    assert read_link(json.dumps({"drafter": drafter}), LESSONS, RECORDED, defaults).values["k_auto"] is is_auto
    assert values_of(drafter=drafter, k="3")["k_auto"] is False
    assert values_of(drafter=drafter, k_auto="false")["k_auto"] is False


@pytest.mark.parametrize("given", [{"min_ngram": "6", "max_ngram": "9"}, {"max_ngram": "1", "min_ngram": "1"}])
def test_settings_that_only_hold_together_come_in_any_order(given):
    values = values_of(**given)
    assert {name: str(values[name]) for name in given} == given


def test_the_draft_weights_come_from_a_link_where_the_drafter_can_have_them():
    assert values_of(drafter="draft_head", draft_precision="float32")["draft_precision"] == "float32"
    assert values_of(drafter="prompt_lookup", draft_precision="int4")["draft_precision"] == "int4"
    given = linked(drafter="draft_head", draft_precision="int4")
    assert (given.values["drafter"], given.values["draft_precision"]) == ("draft_head", "auto")
    assert "choose one of auto, float32, bfloat16" in given.problems[0]


@pytest.mark.parametrize(
    ("precision", "asked"), [("float32", "float32"), ("int8", "auto"), (None, "auto"), ([], "auto")]
)
def test_a_recording_of_a_draft_head_asks_for_the_weights_of_then(precision, asked):
    event = started("Say it again", drafter="draft_head")
    event["drafter"]["precision"] = precision
    event["settings"] |= {"drafter": "draft_head"}
    values = recorded_values(event, {**DEFAULTS, "draft_precision": "bfloat16"})
    assert (values["drafter"], values["draft_precision"]) == ("draft_head", asked)


def test_a_link_that_is_too_long_changes_nothing():
    given = linked(prompt="x" * 200_000)
    assert given.values == DEFAULTS and len(given.problems) == 1


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", '{"__theme": "dark"}', '{"k": null}', "null"])
def test_nonsense_changes_nothing(text):
    assert read_link(text, LESSONS, RECORDED, DEFAULTS) == Linked(DEFAULTS)


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
def test_who_sets_a_number_for_k_leaves_auto(open_page, served):
    page = open_page(reduced_motion="reduce")
    page.goto(f"{served.url}?drafter=draft_model&k_auto=true&seed=42")
    wait_for_stage(page, source="recording", player="paused")
    page.get_by_role("button", name="More settings").click()
    page.wait_for_function("document.querySelector('#sv-seed input').value === '42'")
    assert page.is_checked("#sv-k-auto input") and page.is_disabled("#sv-k input[type=number]")
    assert "up to 8" in page.inner_text("#sv-k")
    page.uncheck("#sv-k-auto input")
    page.wait_for_function("!document.querySelector('#sv-k input[type=number]').disabled")
    page.locator("#sv-k input[type=number]").fill("7")
    page.locator("#sv-k input[type=number]").blur()
    page.wait_for_function("location.search.includes('k=7') && !location.search.includes('k_auto')")


@pytest.mark.browser
def test_a_bad_value_gets_its_sentence_and_takes_nothing_else_along(open_page, served):
    page = open_page()
    page.goto(f"{served.url}?k=many&seed=42#prompt=Kept")
    page.wait_for_function("document.querySelector('.sv-status')?.textContent.includes('give a number there')")
    page.wait_for_function("document.querySelector('#sv-prompt textarea')?.value === 'Kept'")
    assert page.input_value("#sv-k input[type=number]") == str(load_lessons()[0].run_settings().num_draft_tokens)
    page.wait_for_function("!location.search.includes('k=many') && location.search.includes('seed=42')")


@pytest.mark.browser
def test_what_a_link_got_wrong_stands_over_the_run_and_leaves_the_address(open_page, served):
    page = open_page(reduced_motion="reduce")
    page.goto(f"{served.url}?tab=zzz&round=77&evil=%3Cb%3E&seed=42")
    page.wait_for_selector(".sv-status[data-refused=link]")
    said = page.inner_text(".sv-status")
    assert said.startswith("Not as linked") and all(part in said for part in ("'zzz'", "'77'", "from 1 to 8", "'<b>'"))
    wait_for_stage(page, round=1)
    page.wait_for_function("location.search === '?seed=42'")


@pytest.mark.browser
def test_the_controls_follow_a_linked_recording(open_page, served):
    page = open_page(reduced_motion="reduce")
    page.goto(f"{served.url}?recording=first&round=3&drafter=none")
    wait_for_stage(page, source="recording", player="paused", round=3)
    page.wait_for_function("document.querySelector('#sv-prompt textarea')?.value === 'A recorded question'")
    assert page.get_by_label("None (plain)").is_checked()
    assert "round=3" in page.evaluate("location.search")


@pytest.mark.browser
def test_a_lesson_stays_as_long_as_its_prompt(open_page, served):
    page = open_page()
    page.goto(served.url)
    wait_for_stage(page, source="recording")
    page.get_by_label("Editing code").check()
    page.wait_for_function("document.querySelector('#sv-prompt textarea').value.includes('class Counter')")
    says = "text => document.querySelector('#sv-lesson-text').textContent.includes(text)"
    page.wait_for_function(says, arg=LESSONS["code"].lesson)
    page.get_by_label("k too long").check()
    page.wait_for_function(says, arg=LESSONS["long_draft"].lesson)
    assert page.locator("#sv-lesson input:checked").count() == 1
    page.locator("#sv-prompt textarea").fill("My own question")
    page.wait_for_function("document.querySelectorAll('#sv-lesson input:checked').length === 0")
    page.wait_for_function("!document.querySelector('#sv-lesson-text').textContent.trim()")
    assert page.input_value("#sv-prompt textarea") == "My own question"
