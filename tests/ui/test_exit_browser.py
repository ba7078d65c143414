"""The Early exit tab in a browser: the recorded pair first, the slider, the map by pointer and keys, real runs, no barriers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specviz.errors import BadRequest
from specviz.ui.exit_page import export_exit_page
from specviz.ui.exit_request import SWEEP_THRESHOLDS
from specviz.ui.export_page import export_page
from tests.ui.conftest import ServedPage, wait_for_board, wait_for_stage
from tests.ui.exit_traces import NUM_LAYERS, exit_part, part_of, series, timed_run
from tests.ui.fake_runs import FakeRun, wait_until
from tests.ui.test_accessibility_browser import STANDARDS

pytestmark = pytest.mark.browser

PAIR = ["map", "timed"]
BESIDE = ["plain", "early_exit", "self_speculation", "drafted"]
THRESHOLD = "[aria-label='Exit threshold']"


def open_tab(page: Any, served: ServedPage, query: str = "") -> None:
    page.goto(served.url + query)
    page.get_by_role("tab", name="Early exit").click()
    wait_for_board(page, source="recording", map=40)


def barriers(page: Any, root: str) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, root, {"runOnly": STANDARDS, "resultTypes": ["violations"]}).response
    return [f"{rule['id']}: {node['html']}" for rule in found["violations"] for node in rule["nodes"]]


def drawn(page: Any) -> None:
    """Waits for what has changed to be drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))")


def exits_shown(page: Any) -> list[int]:
    return [int(layer) for layer in page.get_attribute(".sv-map", "data-exits").split()]


# ---- the page ----


def test_the_recorded_runs_stand_there_before_anything_is_loaded(open_page, served: ServedPage):
    page = open_page()
    open_tab(page, served)
    wait_for_board(page, source="recording", phase="done", map=40, timed=1, beside=4)
    assert "Recording" in page.inner_text(".sv-board .sv-badge")
    assert served.runs == []
    assert page.locator("#sv-exit .sv-way").count() == 4


def test_who_never_opens_the_tab_pays_nothing_for_it(open_page, served: ServedPage):
    page = open_page()
    page.goto(served.url)
    wait_for_stage(page, source="recording", rounds=8)
    assert page.locator(".sv-board").count() == 0


def test_a_link_opens_the_tab_and_the_address_follows_it(open_page, served: ServedPage):
    page = open_page()
    page.goto(f"{served.url}?tab=early-exit")
    wait_for_board(page, source="recording", map=40)
    page.get_by_role("tab", name="Watch").click()
    page.wait_for_function("!location.search.includes('tab=')")
    page.get_by_role("tab", name="Early exit").click()
    page.wait_for_function("location.search.includes('tab=early-exit')")


def test_run_with_the_rule_of_the_board_then_for_real_then_side_by_side(open_page, served: ServedPage):
    page = open_page()
    open_tab(page, served)
    page.locator("#sv-exit-prompt textarea").fill("My <b>own</b> question")
    page.locator("#sv-exit-tokens input[type=number]").fill("24")
    page.locator(THRESHOLD).fill("80")
    page.get_by_label("entropy").check()
    drawn(page)
    page.click("#sv-exit-run")
    wait_for_board(page, source="live", phase="done", series="pair", map=24, timed=1)
    (map_request, _), (timed_request, _) = served.exit_requests
    assert map_request is timed_request
    assert (timed_request.prompt, timed_request.settings.max_new_tokens) == ("My <b>own</b> question", 24)
    assert (timed_request.exits.measure, timed_request.exits.threshold) == ("entropy", 0.8)
    assert page.inner_text(".sv-board-prompt") == "My <b>own</b> question"

    page.locator("#sv-exit-prompt textarea").fill("Another question, not asked yet")
    page.locator(THRESHOLD).fill("101")
    page.click("[data-run=real]")
    wait_for_board(page, phase="done", series="real", map=24, timed=2)
    request, role = served.exit_requests[-1]
    assert (role, request.prompt, request.exits.threshold) == ("timed", "My <b>own</b> question", "never")

    page.click("[data-run=sweep]")
    wait_for_board(page, phase="done", series="sweep", map=24, timed=2)
    asked = [request.exits.threshold for request, role in served.exit_requests if role == "sweep"]
    assert asked == list(SWEEP_THRESHOLDS["entropy"])
    page.wait_for_function("document.querySelector('.sv-tradeoff').dataset.points === '6'")

    page.get_by_label("Layer for self-speculation").select_option("21")
    page.click("[data-run=beside]")
    wait_for_board(page, phase="done", series="beside", map=24, timed=2, beside=4)
    assert [role for _, role in served.exit_requests[-4:]] == BESIDE
    assert served.exit_requests[-1][0].self_layer == 21
    assert "✓ identical" in page.inner_text("tr[data-role=self_speculation]")


def test_stop_in_the_middle_keeps_what_there_is(open_page, served: ServedPage):
    served.exit_script = lambda request, role: FakeRun(exit_part(request, role), delay=0.2)
    page = open_page()
    open_tab(page, served)
    page.click("#sv-exit-run")
    page.wait_for_function(
        "document.querySelector('.sv-board').dataset.series === 'pair' && +document.querySelector('.sv-map').dataset.tokens > 4 && document.querySelector('.sv-board').dataset.source === 'live'"
    )
    page.click("#sv-exit-stop")
    wait_for_board(page, phase="done", timed=0)
    assert 4 < int(page.get_attribute(".sv-board", "data-map")) < 60
    assert page.inner_text(".sv-board .sv-status") == "Stopped"
    wait_until(served.runs[0].was_closed.is_set)


def test_a_run_on_one_tab_ends_that_of_the_other(open_page, served: ServedPage):
    served.exit_script = lambda request, role: FakeRun(exit_part(request, role), delay=0.3)
    page = open_page()
    open_tab(page, served)
    page.click("#sv-exit-run")
    wait_for_board(page, source="live", phase="running")
    page.get_by_role("tab", name="Watch").click()
    page.click("#sv-run")
    wait_for_stage(page, source="live", phase="done", reason="eos")
    wait_until(served.runs[0].was_closed.is_set)


def test_a_bad_request_and_a_fault_are_one_sentence(open_page, served: ServedPage):
    page = open_page()
    open_tab(page, served)
    page.locator("#sv-exit-prompt textarea").fill(" ")
    page.click("#sv-exit-run")
    wait_for_board(page, phase="error", map=40)
    assert page.inner_text(".sv-board .sv-status").startswith("The prompt is empty")

    def refuse(request: Any, role: str) -> FakeRun:
        raise BadRequest("<i>No such heads</i>: choose plain.")

    served.exit_script = refuse
    page.locator("#sv-exit-prompt textarea").fill("Hello")
    page.click("#sv-exit-run")
    wait_for_board(page, source="live", phase="done")
    assert page.inner_text(".sv-board .sv-status") == "<i>No such heads</i>: choose plain."
    assert page.get_attribute(".sv-board .sv-status", "data-phase") == "error"
    assert page.locator(".sv-map-scroll").is_hidden()


@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_the_tab_fits_its_window(open_page, served: ServedPage, width: int):
    page = open_page(viewport={"width": width, "height": 800})
    open_tab(page, served)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.get_attribute(".sv-map .sv-choice[aria-pressed=true]", "class") == "sv-choice"
    assert page.inner_text(".sv-choice[aria-pressed=true]") == ("Overview" if width == 360 else "Words")


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(open_page, served: ServedPage, theme: str, width: int):
    page = open_page(viewport={"width": width, "height": 900}, reduced_motion="reduce")
    open_tab(page, served, f"?__theme={theme}")
    page.locator(".sv-tradeoff").scroll_into_view_if_needed()
    page.wait_for_selector(".sv-tradeoff[data-painted]", state="attached")
    page.focus(".sv-map-scroll")
    page.keyboard.press("ArrowRight")
    assert barriers(page, "#sv-exit") == []


def test_a_board_becomes_a_file_and_a_run_a_trace(open_page, served: ServedPage, tmp_path: Path):
    page = open_page()
    open_tab(page, served)
    wait_for_board(page, phase="done")
    with page.expect_download() as download:
        page.locator(".sv-save").first.click()
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["type"] for line in (lines[0], lines[-1])] == ["run_started", "run_finished"]
    with page.expect_download() as download:
        page.click("[data-save=page]")
    target = tmp_path / "board.html"
    download.value.save_as(target)
    alone = open_page()
    alone.goto(target.as_uri())
    wait_for_board(alone, source="recording", phase="done", map=40, timed=1, beside=4)
    assert alone.locator("button[data-run]:visible").count() == 0


# ---- the board ----


def test_the_slider_redraws_at_once_what_would_leave_where(open_board: Callable[..., Any]):
    page = open_board(series("pair", PAIR))
    drawn(page)
    shown = []
    for step in ("30", "60", "90", "101"):
        page.locator(THRESHOLD).fill(step)
        drawn(page)
        exits = exits_shown(page)
        shown.append(sum(exits))
        assert f"{sum(exits)} of {60 * NUM_LAYERS} run" in page.inner_text(".sv-rule-outcome")
    assert shown == sorted(shown)
    assert shown[-1] == 60 * NUM_LAYERS
    assert "simulated" in page.inner_text(".sv-rule-outcome")
    page.get_by_label("Minimum layer").fill("24")
    page.locator(THRESHOLD).fill("30")
    drawn(page)
    assert min(exits_shown(page)) >= 24


def test_the_map_grows_with_its_run_and_follows_it(open_board: Callable[..., Any]):
    events = series("pair", ["map"], num_tokens=60)
    page = open_board(events[:6], "live")
    drawn(page)
    assert page.get_attribute(".sv-map", "data-tokens") == "2"
    page.evaluate("(events) => board.take(events)", events[6:50])
    drawn(page)
    assert page.get_attribute(".sv-map", "data-tokens") == "46"
    at_end = "(() => { const scroll = document.querySelector('.sv-map-scroll'); return scroll.scrollWidth - scroll.scrollLeft - scroll.clientWidth; })()"
    assert page.evaluate(at_end) < 3
    page.evaluate("document.querySelector('.sv-map-scroll').scrollLeft = 0")
    drawn(page)
    page.evaluate("(events) => board.take(events)", events[50:])
    drawn(page)
    assert page.evaluate("document.querySelector('.sv-map-scroll').scrollLeft") == 0


def test_a_cell_tells_what_its_layer_would_have_said(open_board: Callable[..., Any]):
    events = series("pair", PAIR)
    page = open_board(events)
    drawn(page)
    box = page.locator(".sv-map-scroll").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    drawn(page)
    index, layer = map(int, page.get_attribute(".sv-map", "data-cell").split("."))
    said = events[4 + index]["map"]["texts"][layer - 1]
    assert f"Token {index + 1}, layer {layer} of 30" in page.inner_text(".sv-detail")
    assert said.strip() in page.inner_text(".sv-detail-says")
    assert "nats" in page.inner_text(".sv-detail")
    page.mouse.move(5, 5)
    drawn(page)
    assert page.get_attribute(".sv-map", "data-cell") is None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(5, 5)
    drawn(page)
    assert page.get_attribute(".sv-map", "data-cell") == f"{index}.{layer}"


def test_the_keys_go_from_cell_to_cell(open_board: Callable[..., Any]):
    page = open_board(series("pair", PAIR))
    drawn(page)
    page.focus(".sv-map-scroll")
    first = "0." + page.get_attribute(".sv-map", "data-exits").split()[0]
    layer = int(first.split(".")[1])
    for key, cell in (
        ("ArrowRight", first), ("ArrowRight", f"1.{layer}"), ("ArrowDown", f"1.{layer - 1}"), ("PageDown", f"11.{layer - 1}"),
        ("End", f"59.{layer - 1}"), ("ArrowRight", f"59.{layer - 1}"), ("Home", f"0.{layer - 1}"), ("Escape", None),
    ):  # fmt: skip
        page.keyboard.press(key)
        drawn(page)
        assert page.get_attribute(".sv-map", "data-cell") == cell
        if cell:
            assert f"after layer {cell.split('.')[1]} of 30" in page.text_content(".sv-map > [aria-live]")


def test_the_timed_run_says_where_it_departs_and_marks_it(open_board: Callable[..., Any]):
    page = open_board(series("pair", PAIR, threshold=0.2))
    drawn(page)
    exits = [event["exit"]["layer"] for event in timed_run(60, threshold=0.2) if event["type"] == "round"]
    assert page.inner_text(".sv-departs").startswith("Departs at token")
    assert page.locator(".sv-timed-texts .sv-chip[data-differs]").count() > 10
    for layer in set(exits):
        row = page.locator(f".sv-histogram-rows li[data-layer='{layer}']")
        assert row.get_attribute("data-count") == str(exits.count(layer))
    assert f"{sum(exits)} / 60" in page.inner_text(".sv-timed .sv-tiles")


def test_a_slower_run_is_shown_as_slower(open_board: Callable[..., Any]):
    events = series("pair", PAIR)
    events[-1]["plain_tokens_per_second"] = 100.0
    page = open_board(events)
    drawn(page)
    assert page.inner_text("[data-figure=time_saved]").startswith("−")
    assert "slower; a token" in page.inner_text(".sv-timed .sv-tiles")
    assert page.get_attribute("[data-figure=time_saved]", "data-answer") == "false"


def test_a_sampled_run_is_compared_with_nothing(open_board: Callable[..., Any]):
    events = series("pair", PAIR, threshold=0.2)
    for event in events:
        if event["type"] == "run_started":
            event["settings"]["temperature"] = 1.0
    page = open_board(events)
    drawn(page)
    assert page.inner_text(".sv-departs").startswith("Sampled: not comparable")
    assert page.locator(".sv-timed-texts .sv-chip[data-differs]").count() == 0
    assert "sampled: not comparable" in page.inner_text(".sv-timed .sv-tiles")


def test_a_stopped_row_is_no_result(open_board: Callable[..., Any]):
    beside = series("beside", BESIDE)
    last = next(event for event in reversed(beside) if event["type"] == "run_finished")
    last["reason"] = "cancelled"
    page = open_board([*series("pair", PAIR), *beside])
    drawn(page)
    assert "stopped" in page.inner_text("tr[data-role=drafted]") and "faster" not in page.inner_text(
        "tr[data-role=drafted]"
    )


def test_a_timed_run_alone_is_shown_without_a_map(open_board: Callable[..., Any]):
    page = open_board(series("pair", ["timed"]))
    drawn(page)
    assert page.inner_text(".sv-board-prompt") == "Write about the sea"
    assert page.is_visible(".sv-timed-body")


def test_the_race_runs_on_one_clock_and_ends_with_everything(open_board: Callable[..., Any]):
    page = open_board([*series("pair", PAIR), *series("beside", BESIDE)])
    drawn(page)
    page.get_by_role("button", name="Race").click()
    page.wait_for_selector(".sv-beside[data-racing]")
    page.wait_for_function(
        "(() => { const [plain, exit] = document.querySelectorAll('.sv-way .sv-run-text'); return +exit.dataset.tokens > +plain.dataset.tokens && +plain.dataset.tokens > 2; })()"
    )
    page.wait_for_selector(".sv-beside:not([data-racing])")
    assert [node.get_attribute("data-tokens") for node in page.locator(".sv-way .sv-run-text").all()] == ["60"] * 4


def test_a_long_map_is_drawn_in_time(open_board: Callable[..., Any]):
    page = open_board(series("pair", PAIR, num_tokens=500), "live")
    drawn(page)
    times = []
    for step in range(20, 90, 7):
        page.locator(THRESHOLD).fill(str(step))
        drawn(page)
        times.append(
            float(page.get_attribute(".sv-board", "data-draw-ms"))
            + float(page.get_attribute(".sv-map", "data-paint-ms"))
        )
    assert sorted(times)[len(times) // 2] < 150  # milliseconds; 25 where nothing else runs


def test_texts_of_a_model_stay_texts(open_board: Callable[..., Any]):
    events = series("pair", PAIR, num_tokens=6, prompt="<img src=x onerror='window.__hurt=1'>")
    hostile = ["<script>window.__hurt=1</script>", "${window.__hurt=1}", "\u202e", "", "\n", "漢字" * 200]
    for event in events:
        if event["type"] == "round":
            text = hostile[event["round"] - 1]
            event["extra"]["text"] = text
            if "map" in event:
                event["map"]["texts"] = [text] * NUM_LAYERS
    page = open_board(events)
    drawn(page)
    page.focus(".sv-map-scroll")
    for _ in range(7):
        page.keyboard.press("ArrowRight")
        drawn(page)
    assert page.evaluate("window.__hurt") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_layer_that_cannot_be_read_is_said_to_be_so(open_board: Callable[..., Any]):
    events = series("pair", PAIR, num_tokens=6)
    for event in events:
        if "map" in event:
            event["map"]["ids"][8] = event["map"]["texts"][8] = None
            for readings in event["map"]["measures"].values():
                readings[8] = None
    page = open_board(events)
    drawn(page)
    page.focus(".sv-map-scroll")
    page.keyboard.press("ArrowRight")
    layer = int(page.get_attribute(".sv-map", "data-cell").split(".")[1])
    for _ in range(layer - 9):
        page.keyboard.press("ArrowDown")
    assert "cannot be read out" in page.inner_text(".sv-detail")


def test_the_exported_board_works_alone_and_without_a_word_to_anybody(open_page, tmp_path: Path):
    path = tmp_path / "board.html"
    path.write_text(export_exit_page([(role, part_of(role, 20)) for role in (*PAIR, *BESIDE)]), encoding="utf-8")
    page = open_page()
    page.goto(path.as_uri())
    wait_for_board(page, source="recording", map=20, beside=4)
    page.locator(".sv-tradeoff").scroll_into_view_if_needed()
    page.wait_for_selector(".sv-tradeoff[data-painted]", state="attached")


# ---- an early-exit trace on the Watch tab ----


@pytest.mark.parametrize("role", PAIR)
def test_the_stage_replays_an_early_exit_run(open_page, tmp_path: Path, role: str):
    path = tmp_path / "run.html"
    path.write_text(export_page(part_of(role, 12)), encoding="utf-8")
    page = open_page(reduced_motion="reduce")
    page.goto(path.as_uri())
    wait_for_stage(page, source="recording", rounds=12)
    page.locator(".sv-scrub").fill("12")
    assert " layers" in page.inner_text(".sv-sentence")
    assert "layers / token" in page.inner_text(".sv-figures")
    page.locator(".sv-chips .sv-chip").first.click()
    assert "layer" in page.inner_text(".sv-inspector-verdict")
    assert page.locator(".sv-exit-looks").count() == 1


@pytest.mark.slow
@pytest.mark.embedded
def test_the_embedded_model_leaves_early_on_the_page(open_page, embedded_dir: Path):
    from specviz.ui.page import build_demo, launch_options

    demo = build_demo()
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, **launch_options())
    try:
        page = open_page()
        page.set_default_timeout(300_000)
        page.goto(f"{url}?tab=early-exit")
        wait_for_board(page, source="recording", phase="done", timed=1, beside=4)
        page.locator("#sv-exit-tokens input[type=number]").fill("12")
        page.click("#sv-exit-run")
        wait_for_board(page, source="live", phase="done", timed=1)
        page.locator(THRESHOLD).fill("101")
        drawn(page)
        page.click("button[data-run=real]")
        wait_for_board(page, phase="done", timed=2)
        assert page.inner_text(".sv-departs") == "Identical to plain decoding: yes, checked in this run."
        page.click("button[data-run=beside]")
        wait_for_board(page, phase="done", beside=4)
        for role in ("early_exit", "self_speculation", "drafted"):
            assert "✓ identical" in page.inner_text(f"tr[data-role={role}]")
    finally:
        demo.close()
