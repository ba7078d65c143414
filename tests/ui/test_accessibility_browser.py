"""Nobody is left out: axe-core finds nothing, every control has keys and a visible focus, a reader gets a sentence a round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specviz.ui.recordings import RECORDINGS_DIR
from tests.ui.conftest import wait_for_stage
from tests.ui.fake_runs import story
from tests.ui.long_runs import recorded

pytestmark = pytest.mark.browser

OpenStage = Callable[..., Any]
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
WIDTHS = [1280, 360]


@pytest.fixture(scope="session")
def recorded_page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The address of the page with the shipped recordings."""
    from specviz.ui.page import build_demo, launch_options

    demo = build_demo(lambda request, notify: None, Path(RECORDINGS_DIR))
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    yield url
    demo.close()


def barriers(page: Any) -> list[str]:
    """What axe-core finds in the stage, each with the place."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, ".sv-stage", {"runOnly": STANDARDS, "resultTypes": ["violations"]}).response
    assert found["testEngine"]["name"] == "axe-core"
    return [f"{rule['id']}: {node['html']}" for rule in found["violations"] for node in rule["nodes"]]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("recording", ["01-weekdays", "03-temperature"])
def test_axe_finds_nothing(open_page, recorded_page: str, recording: str, theme: str, width: int):
    page = open_page(viewport={"width": width, "height": 900}, reduced_motion="reduce")
    page.goto(f"{recorded_page}?recording={recording}&round=1&__theme={theme}")
    wait_for_stage(page, player="paused", round=1, run=recorded(recording)[0]["run_id"])
    if width > 700:
        page.wait_for_selector(".sv-plot[data-plot=sizes][data-painted='1']", state="attached")
    assert barriers(page) == []
    page.locator(".sv-draft").last.click()
    page.wait_for_selector("dialog.sv-inspector[open]")
    assert barriers(page) == []


@pytest.mark.parametrize("viewport", [{"width": 1280, "height": 700}, {"width": 360, "height": 700}])
def test_what_has_the_focus_is_seen_and_shows_it(open_stage: OpenStage, viewport: dict[str, int]):
    page = open_stage(story(6), viewport=viewport, reduced_motion="reduce")
    page.evaluate("stage.commands.scrub(2)")
    seen = []
    page.locator(".sv-stage").focus()
    for _ in range(60):
        page.keyboard.press("Tab")
        state = page.evaluate(
            """() => {
                const at = document.activeElement;
                if (!at.closest(".sv-stage")) return null;
                const { left, top, width, height } = at.getBoundingClientRect();
                const onTop = document.elementFromPoint(left + width / 2, top + height / 2);
                const isCovered = onTop !== null && !at.contains(onTop) && !onTop.contains(at) && !onTop.closest("[popover]");
                return { name: at.getAttribute("aria-label") || at.textContent, isCovered, ring: getComputedStyle(at).outlineStyle };
            }"""
        )
        if state is None:
            break
        assert not state["isCovered"], state["name"]
        assert state["ring"] == "solid", state["name"]
        seen.append(state["name"])
    assert {"Play", "Step back", "Step forward", "Reset to the start", "Round", "Speed"} <= set(seen)


def test_a_reader_gets_one_sentence_a_round_and_nothing_in_between(open_stage: OpenStage):
    page = open_stage(story(5))
    live = page.locator(".sv-stage > [aria-live=polite]")
    page.evaluate(
        """() => {
            window.said = [];
            const region = document.querySelector(".sv-stage > [aria-live=polite]");
            new MutationObserver(() => window.said.push(region.textContent)).observe(region, { childList: true, characterData: true, subtree: true });
        }"""
    )
    for number in range(1, 4):
        for _ in range(4):
            page.evaluate("stage.commands.stepForward()")
        page.evaluate(f"stage.commands.scrub({number})")
        sentence = page.inner_text(".sv-sentence")
        page.wait_for_function(
            "(text) => window.said.at(-1)?.replace(/\\u00a0/g, ' ') === text", arg=sentence.replace("\u00a0", " ")
        )
    assert len(page.evaluate("window.said")) <= 4
    assert live.count() == 1


def test_a_quick_run_does_not_flood_a_reader(open_stage: OpenStage):
    page = open_stage([], kind="live")
    events = story(60)
    said = page.evaluate(
        """async (events) => {
            const said = [];
            const region = document.querySelector(".sv-stage > [aria-live=polite]");
            new MutationObserver(() => said.push(region.textContent)).observe(region, { childList: true, characterData: true, subtree: true });
            for (const event of events) {
                stage.take([event]);
                await new Promise((resolve) => setTimeout(resolve, 20));
            }
            stage.end();
            await new Promise((resolve) => setTimeout(resolve, 2000));
            return said;
        }""",
        events,
    )
    assert 1 <= len(said) <= 5
    assert "generation stopped" in said[-1]


def test_with_reduced_motion_a_step_is_there_at_once(open_stage: OpenStage):
    page = open_stage(story(6), reduced_motion="reduce")
    page.evaluate("stage.commands.scrub(2)")
    opacities = page.evaluate(
        "[...document.querySelectorAll('.sv-cell[data-shown], .sv-rollback')].map((n) => getComputedStyle(n).opacity)"
    )
    assert set(opacities) <= {"1", "0.5"}  # what was rolled back is paler
    assert page.evaluate("document.getAnimations().length") == 0
