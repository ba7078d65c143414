"""A run of thousands of tokens on the served page: nothing is lost on the way, and every way leads to the same picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specviz.trace.reader import read_trace
from tests.ui.conftest import ServedPage, wait_for_stage
from tests.ui.fake_runs import FakeRun
from tests.ui.long_runs import long_run
from tests.ui.test_stage_browser import picture

pytestmark = pytest.mark.browser

EVENTS = long_run(2000)
NUM_ROUNDS = sum(event["type"] == "round" for event in EVENTS)
SETTLED = "async () => { for (let i = 0; i < 4; i += 1) await new Promise((r) => requestAnimationFrame(() => setTimeout(r))); }"


@pytest.fixture
def recorded(open_page, served: ServedPage, tmp_path: Path) -> Any:
    """The page with the long run as a trace that a visitor opened."""
    path = tmp_path / "long.jsonl"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in EVENTS), encoding="utf-8")
    page = open_page(reduced_motion="reduce")
    page.goto(served.url)
    wait_for_stage(page, rounds=8)
    page.get_by_role("button", name="Recordings").click()
    page.locator("#sv-recordings input[type=file]").set_input_files(path)
    wait_for_stage(page, source="recording", phase="done", rounds=NUM_ROUNDS)
    return page


@pytest.fixture
def live(open_page, served: ServedPage) -> Any:
    """The page after it took the same run in live, 300 rounds a second."""
    served.script = lambda request: FakeRun(EVENTS, delay=1 / 300)
    page = open_page(reduced_motion="reduce")
    page.goto(served.url)
    wait_for_stage(page, rounds=8)
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="done", rounds=NUM_ROUNDS, round=NUM_ROUNDS)
    return page


def saved(page: Any) -> list[dict[str, Any]]:
    with page.expect_download() as download:
        page.click("[aria-label^='Save this run']")
    return list(read_trace(download.value.path()))


def picture_at(page: Any, number: int) -> str:
    page.locator(".sv-scrub").fill(str(number))
    wait_for_stage(page, round=number, player="paused")
    page.evaluate(SETTLED)
    return picture(page)


def test_no_event_is_lost(recorded: Any, live: Any):
    assert saved(recorded) == EVENTS
    assert saved(live) == EVENTS


def test_live_play_scrubs_and_steps_lead_to_the_same_picture(recorded: Any, live: Any):
    for number in (NUM_ROUNDS, 3, NUM_ROUNDS // 2):
        assert picture_at(live, number) == picture_at(recorded, number)
    middle = NUM_ROUNDS // 2
    pictures = {number: picture_at(recorded, number) for number in (middle, middle + 1)}
    recorded.locator(".sv-stage").focus()
    for keys, number in (("Shift+ArrowLeft", middle), ("Shift+ArrowRight", middle + 1)):
        recorded.keyboard.press(keys)
        wait_for_stage(recorded, round=number, beat="commit")
        recorded.evaluate(SETTLED)
        assert picture(recorded) == pictures[number]
