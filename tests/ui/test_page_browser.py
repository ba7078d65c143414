"""The served page in Chromium, with fake runs: a recording at once, run, stop, run again, open, two visitors."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
import uvicorn
from fastapi import FastAPI

from specviz.ui.page import build_demo, launch_options
from tests.ui.conftest import ServedPage, wait_for_stage
from tests.ui.fake_runs import FakeRun, story, wait_until

pytestmark = pytest.mark.browser


def test_a_recorded_run_plays_before_anything_is_loaded(open_page, served: ServedPage):
    page = open_page()
    page.goto(served.url)
    wait_for_stage(page, source="recording", player="playing", rounds=8)
    assert "Recording" in page.inner_text(".sv-source")
    page.wait_for_function("+document.querySelector('.sv-stage').dataset.moment > 2")
    assert served.runs == []


def test_who_prefers_stillness_gets_the_first_round_standing(open_page, served: ServedPage):
    page = open_page(reduced_motion="reduce")
    page.goto(served.url)
    wait_for_stage(page, source="recording", player="paused", round=1, beat="commit")


def test_run_stop_in_the_middle_and_run_again(open_page, served: ServedPage):
    served.script = lambda request: FakeRun(story(400, request.prompt, request.settings), delay=0.2)
    page = open_page()
    page.goto(served.url)
    page.locator("#sv-prompt textarea").fill("My own question")
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="running", player="following")
    page.wait_for_function("+document.querySelector('.sv-stage').dataset.rounds > 5")
    page.click("#sv-stop")
    wait_for_stage(page, phase="done", reason="cancelled")
    kept = int(page.get_attribute(".sv-stage", "data-rounds"))
    assert 5 < kept < 400
    assert "the run was stopped" in page.inner_text(".sv-status")
    assert "My own question" in page.text_content(".sv-prompt")
    wait_until(served.runs[0].was_closed.is_set)

    served.script = lambda request: FakeRun(story(12, request.prompt, request.settings))
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="done", reason="eos", rounds=12, round=12)
    assert page.locator(".sv-chips .sv-chip").count() == page.evaluate(
        "document.querySelectorAll('.sv-chips .sv-token').length"
    )

    page.click(".sv-toggle")
    wait_for_stage(page, player="playing")
    page.click(".sv-toggle")
    page.locator(".sv-scrub").fill("3")
    wait_for_stage(page, round=3, player="paused")


def test_run_during_a_run_begins_anew(open_page, served: ServedPage):
    served.script = lambda request: FakeRun(story(2000, request.prompt, request.settings), delay=0.2)
    page = open_page()
    page.goto(served.url)
    page.locator("#sv-prompt textarea").fill("First")
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="running")
    served.script = lambda request: FakeRun(story(9, request.prompt, request.settings))
    page.locator("#sv-prompt textarea").fill("Second")
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="done", reason="eos", rounds=9)
    assert "Second" in page.text_content(".sv-prompt")
    wait_until(served.runs[0].was_closed.is_set)


def test_the_controls_reach_the_run(open_page, served: ServedPage):
    page = open_page()
    page.goto(served.url)
    page.locator("#sv-prompt textarea").fill("Q")
    page.get_by_label("None (plain)").check()
    page.get_by_label("Compare with plain decoding").uncheck()
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="done")
    (request,) = served.requests
    assert (request.prompt, request.settings.drafter, request.check) == ("Q", "none", False)


def test_a_bad_request_is_one_sentence_and_loses_nothing(open_page, served: ServedPage):
    page = open_page()
    page.goto(served.url)
    wait_for_stage(page, source="recording", rounds=8)
    page.locator("#sv-prompt textarea").fill("   ")
    page.click("#sv-run")
    wait_for_stage(page, phase="error", player="paused")
    said = page.inner_text(".sv-status")
    assert said.startswith("Not run The prompt is empty") and said.endswith("the recording from before.")
    assert page.locator(".sv-status").bounding_box()["y"] < page.locator(".sv-badge").bounding_box()["y"]
    assert page.get_attribute(".sv-stage", "data-rounds") == "8"
    assert served.runs == []


def test_a_number_out_of_bounds_is_refused_with_a_sentence(open_page, served: ServedPage):
    page = open_page()
    page.goto(served.url)
    page.get_by_role("button", name="More settings").click()
    page.locator("#sv-seed input").fill("-5")
    page.locator("#sv-seed input").blur()
    page.click("#sv-run")
    wait_for_stage(page, phase="error")
    assert "The seed is -5" in page.inner_text(".sv-status")


def test_a_run_that_cannot_begin_says_so(open_page, served: ServedPage):
    from specviz.errors import BadRequest

    def refuse(request: Any) -> FakeRun:
        raise BadRequest("<b>There is no such model</b>: choose another.")

    served.script = refuse
    page = open_page()
    page.goto(served.url)
    page.click("#sv-run")
    wait_for_stage(page, phase="error")
    assert page.inner_text(".sv-status").startswith("Not run <b>There is no such model</b>: choose another.")


def test_a_trace_file_can_be_opened_and_a_bad_one_is_refused(open_page, served: ServedPage, tmp_path: Path):
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text("\n".join(json.dumps(event) for event in story(5, "<i>Brought</i>")) + "\n", encoding="utf-8")
    bad.write_text('{"type":"run_started","schema":99}\n', encoding="utf-8")
    page = open_page()
    page.goto(served.url)
    wait_for_stage(page, rounds=8)
    page.get_by_role("button", name="Recordings").click()
    page.locator("#sv-recordings input[type=file]").set_input_files(good)
    wait_for_stage(page, source="recording", rounds=5)
    assert "<i>Brought</i>" in page.text_content(".sv-prompt")
    page.locator("#sv-recordings input[type=file]").set_input_files(bad)
    wait_for_stage(page, phase="error", rounds=5)
    assert page.inner_text(".sv-status").startswith("Not opened") and "schema is 99" in page.inner_text(".sv-status")


def test_a_number_that_a_slider_will_not_take_is_told(open_page, served: ServedPage):
    page = open_page(reduced_motion="reduce")
    page.goto(served.url)
    number = page.locator("#sv-k input[type=number]")
    for typed, taken in (("99", "16"), ("0", "1"), ("-3", "1"), ("", "1")):
        number.fill(typed)
        number.blur()
        page.wait_for_function(f"document.querySelector('#sv-k').textContent.includes('It becomes {taken}.')")
        assert (typed or "An empty field") in page.inner_text("#sv-k") and number.input_value() == taken
    page.wait_for_function("location.search === '?k=1'")
    number.fill("5")
    page.wait_for_function("!document.querySelector('#sv-k').textContent.includes('It becomes')")


def test_a_drafter_that_is_chosen_brings_its_best_k_until_k_is_chosen(open_page, served: ServedPage):
    page = open_page(reduced_motion="reduce")
    page.goto(served.url)
    auto = "document.querySelector('#sv-k-auto input')"
    page.get_by_label("Early exit", exact=True).check()
    page.wait_for_function(f"{auto}.checked && document.querySelector('#sv-k input').disabled")
    page.get_by_label("Prompt lookup", exact=True).check()
    page.wait_for_function(f"!{auto}.checked && {auto}.disabled && !document.querySelector('#sv-k input').disabled")
    page.locator("#sv-k input[type=number]").fill("3")
    page.get_by_label("Early exit", exact=True).check()
    page.wait_for_function(f"!{auto}.disabled")
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="done")
    assert [request.settings.num_draft_tokens for request in served.requests] == [3]


def test_two_visitors_do_not_disturb_each_other(open_page, served: ServedPage):
    lengths, delays = {"Question 0": 2000, "Question 1": 40}, {"Question 0": 0.5, "Question 1": 0.05}
    served.script = lambda request: FakeRun(
        story(lengths[request.prompt], request.prompt, request.settings), delay=delays[request.prompt]
    )
    pages = [open_page(), open_page()]
    for number, page in enumerate(pages):
        page.goto(served.url)
        page.locator("#sv-prompt textarea").fill(f"Question {number}")
        page.click("#sv-run")
    wait_for_stage(pages[1], source="live", phase="done", reason="eos", rounds=40)
    wait_for_stage(pages[0], source="live", phase="running")
    pages[0].click("#sv-stop")
    wait_for_stage(pages[0], phase="done", reason="cancelled")
    assert [run.was_cancelled.is_set() for run in served.runs if len(run.events) < 100] == [False]
    assert "Question 1" in pages[1].text_content(".sv-prompt")
    assert "Question 0" in pages[0].text_content(".sv-prompt")


def test_closing_the_page_ends_its_run(open_page, served: ServedPage):
    served.script = lambda request: FakeRun(story(2000, request.prompt, request.settings), delay=0.05)
    page = open_page()
    page.goto(served.url)
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="running")
    page.close()
    wait_until(served.runs[0].was_cancelled.is_set, 30)


def test_the_tabs_stand_beside_the_title(open_page, served: ServedPage):
    page = open_page()
    page.goto(served.url)
    wait_for_stage(page, rounds=8)
    assert [tab.inner_text() for tab in page.get_by_role("tab").all()] == ["Watch", "Early exit"]
    head, tab, stage = (
        page.locator(where).first.bounding_box() for where in (".sv-page-head h1", "[role=tab]", "#sv-watch")
    )
    assert head["y"] + head["height"] <= stage["y"]
    assert tab["y"] < head["y"] + head["height"]


@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_the_page_fits_its_window(open_page, served: ServedPage, width: int):
    page = open_page(viewport={"width": width, "height": 800})
    page.goto(served.url)
    wait_for_stage(page, rounds=8)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_mode_reaches_the_stage(open_page, served: ServedPage):
    page = open_page()
    page.goto(served.url + "?__theme=dark")
    wait_for_stage(page, rounds=8)
    assert page.evaluate("getComputedStyle(document.querySelector('.sv-stage')).colorScheme") == "dark"


def test_it_works_below_another_address(open_page, fake_recordings: Path):
    demo = build_demo(lambda request, notify: FakeRun(story(5, request.prompt)), fake_recordings)
    options = {key: value for key, value in launch_options().items() if key not in ("share", "ssr_mode")}
    app = gr.mount_gradio_app(FastAPI(), demo, path="/below/here", **options)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, 30)
    port = server.servers[0].sockets[0].getsockname()[1]
    page = open_page()
    page.goto(f"http://127.0.0.1:{port}/below/here/")
    wait_for_stage(page, source="recording", rounds=8)
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="done", rounds=5)
    page.close()
    server.should_exit = True
    thread.join(20)


@pytest.mark.slow
@pytest.mark.embedded
def test_the_embedded_model_runs_on_the_page(open_page, embedded_dir: Path):
    demo = build_demo()
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    try:
        page = open_page()
        page.set_default_timeout(300_000)
        page.goto(url)
        wait_for_stage(page, source="recording")
        page.locator("#sv-prompt textarea").fill("Say: one two three, one two three, one two three.")
        page.get_by_role("button", name="More settings").click()
        page.locator("#sv-tokens input[type=number]").fill("128")
        page.click("#sv-run")
        wait_for_stage(page, source="live", phase="done")
        assert int(page.get_attribute(".sv-stage", "data-rounds")) >= 1
        assert "checked in this run" in page.inner_text(
            ".sv-proof dd[data-proof=identity]"
        ) or "no;" in page.inner_text(".sv-proof")
        assert "measured" in page.inner_text(".sv-proof dd[data-proof=speedup]")
    finally:
        demo.close()
