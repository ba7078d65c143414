"""A conversation: turns that follow up know what was said, and use the caches of the turns before."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from specviz.presets import find_pair, load_lessons
from specviz.ui.conversation import MAX_CONVERSATIONS, MAX_KEPT_CACHES, ConversationBook
from specviz.ui.handlers import Handlers
from specviz.ui.run_request import control_values
from tests.ui.conftest import wait_for_stage
from tests.ui.fake_runs import FakeRun, story

GOOD = {**control_values(None, find_pair("embedded")), "prompt": "Hello"}


class Page:
    """Handlers over fake runs, and the requests that these were made for."""

    def __init__(self) -> None:
        self.requests = []
        self.histories = []
        self.handlers = Handlers(self._make_run, (), load_lessons())

    def _make_run(self, request, notify) -> FakeRun:
        self.requests.append(request)
        self.histories.append(list(request.conversation.history) if request.conversation else None)
        return FakeRun(story(4, request.prompt))

    def ask(self, prompt: str, session: str = "s1", is_follow_up: bool = False, **values) -> list[str]:
        given = {**GOOD, "prompt": prompt, **values}
        return list(self.handlers.run(given, SimpleNamespace(session_hash=session), is_follow_up))


def answer_of(prompt: str) -> str:
    return next(event["output_text"] for event in story(4, prompt) if event["type"] == "run_finished")


def test_a_follow_up_knows_the_turns_before():
    page = Page()
    page.ask("One")
    page.ask("Two", is_follow_up=True)
    page.ask("Three", is_follow_up=True)
    assert page.histories[0] == []
    assert [message["content"] for message in page.histories[2]] == ["One", answer_of("One"), "Two", answer_of("Two")]
    assert [message["role"] for message in page.histories[2]] == ["user", "assistant"] * 2


def test_run_begins_anew():
    page = Page()
    page.ask("One")
    page.ask("Two")
    assert page.histories == [[], []]


def test_visitors_do_not_hear_each_other():
    page = Page()
    page.ask("One", session="a")
    page.ask("Two", session="b", is_follow_up=True)
    assert page.histories[1] == []


def test_a_raw_prompt_is_no_turn():
    page = Page()
    page.ask("One", raw=True)
    assert page.histories == [None]
    (refused,) = page.ask("Two", is_follow_up=True, raw=True)
    assert "raw prompt" in json.loads(refused.split("\n")[0])["error"]


def test_the_system_message_reaches_the_run():
    page = Page()
    page.ask("One", system="  Be brief.  ")
    assert page.requests[0].system == "Be brief."


def test_other_models_get_other_caches():
    talk = ConversationBook().begin("s")
    first = talk.memory_for("pair a")
    assert talk.memory_for("pair a") is first
    assert talk.memory_for("pair b") is not first


def test_only_the_latest_talkers_keep_their_caches():
    book = ConversationBook()
    talks = [book.begin(f"s{i}") for i in range(MAX_CONVERSATIONS + 5)]
    for talk in talks:
        talk.memory_for("pair")
    book.of(f"s{MAX_CONVERSATIONS + 4}")
    assert sum(book.of(f"s{i}").memory is not None for i in range(MAX_CONVERSATIONS + 5)) <= MAX_KEPT_CACHES


@pytest.mark.browser
def test_the_stage_shows_earlier_turns_folded_and_literally(open_stage):
    hostile = "<img src=x onerror=alert(1)> ${x} {{x}}"
    events = story(4, "And now?")
    events[0]["prompt"] |= {
        "history": [{"role": "user", "content": hostile}, {"role": "assistant", "content": "Yes."}],
        "earlier": 3,
        "reused": 2,
    }
    page = open_stage(events)
    assert "1 earlier turn, 3 tokens" in page.inner_text(".sv-turns summary")
    assert "2 positions kept" in page.inner_text(".sv-turns summary")
    assert not page.locator(".sv-turns-list").is_visible()
    page.click(".sv-turns summary")
    assert hostile in page.inner_text(".sv-turns-list")
    assert page.locator(".sv-turns img").count() == 0


@pytest.mark.browser
def test_a_run_without_earlier_turns_shows_none(open_stage):
    assert not open_stage(story(4, "Hi")).locator(".sv-turns").is_visible()


@pytest.mark.browser
def test_following_up_in_the_page(open_page, served):
    page = open_page()
    page.goto(f"{served.url}?raw=false#prompt=First")
    page.wait_for_function("document.querySelector('#sv-prompt textarea')?.value === 'First'")
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="done")
    page.locator("#sv-prompt textarea").fill("Second")
    page.click("#sv-follow-up")
    page.wait_for_function("document.querySelector('.sv-prompt')?.textContent.includes('Second')")
    wait_for_stage(page, source="live", phase="done")
    assert [request.prompt for request in served.requests] == ["First", "Second"]
    assert served.requests[1].conversation.history[0] == {"role": "user", "content": "First"}
