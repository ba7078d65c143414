"""The plots on a screen: drawn from plotly.js, in step with the player, in both lights, saved as shown."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from specviz.metrics import fold_metrics
from specviz.ui.bundle import stage_css, stage_script
from specviz.ui.plotly_js import PLOTLY_ADDRESS, plotly_script
from tests.ui.conftest import ServedPage
from tests.ui.fake_runs import story

pytestmark = pytest.mark.browser

OpenPlots = Callable[..., Any]
PLOTS = ["acceptance", "positions", "speed", "memory", "time", "sizes"]
START = """([css, events, kind, plotly]) => {
    const load = async () => {
        if (plotly === null) throw new Error("no plotly.js here");
        const script = document.createElement("script");
        script.textContent = plotly;
        document.head.append(script);
        return window.Plotly;
    };
    window.loads = 0;
    const loadPlotly = () => { window.loads += 1; return load(); };
    window.stage = SpecViz.createStage(document.getElementById("root"), { css, loadPlotly });
    stage.begin(kind);
    stage.take(events);
    if (kind === "recording") stage.end();
}"""


@pytest.fixture
def open_plots(open_page: Callable[..., Any]) -> OpenPlots:
    """open_plots(events): the stage with its plots, on a page tall enough to show all of them."""

    def open_(events: list[dict[str, Any]], kind: str = "recording", has_plotly: bool = True, **options: Any) -> Any:
        page = open_page(**{"viewport": {"width": 1280, "height": 2000}, "reduced_motion": "reduce", **options})
        page.set_content("<!doctype html><meta charset=utf-8><body><div id=root></div>")
        page.add_script_tag(content=stage_script() + "; window.SpecViz = SpecViz;")
        page.evaluate(START, [stage_css(), events, kind, plotly_script() if has_plotly else None])
        return page

    return open_


def show_round(page: Any, number: int) -> None:
    """Goes to a round and waits until all plots that are in sight show it."""
    page.evaluate(f"stage.commands.scrub({number})")
    for name in PLOTS:
        page.wait_for_selector(f".sv-plot[data-plot={name}][data-painted='{number}']")


def test_six_plots_follow_the_player_both_ways(open_plots: OpenPlots):
    events = story(20)
    rounds = [event for event in events if event["type"] == "round"]
    page = open_plots(events)
    for number in (20, 7, 12):
        show_round(page, number)
        metrics = fold_metrics(rounds[:number]).metrics()
        value = "document.querySelector('.sv-plot[data-plot=%s] .sv-plot-value').textContent"
        assert page.evaluate(value % "acceptance") == f"α {metrics['alpha']:.2f}"
        assert page.evaluate(value % "sizes") == f"mean {metrics['mean_tokens_per_round']:.2f}"
        ends = page.evaluate(
            "SpecViz.plotSeries.NAMES.map((n) => document.querySelector(`[data-plot=${n}] .sv-plot-canvas`).data.at(-1).x.at(-1))"
        )
        assert ends[0] == ends[2] == number
    assert page.locator(".sv-plot-canvas .main-svg").count() >= 6
    assert page.locator(".modebar-btn, .plotlylogo").count() == 0


def test_every_plot_can_be_read_without_seeing_it(open_plots: OpenPlots):
    page = open_plots(story(12))
    show_round(page, 12)
    for name in PLOTS:
        picture = page.locator(f".sv-plot[data-plot={name}] [role=img]")
        assert picture.get_attribute("aria-label").endswith(".")
    assert "plain decoding: 21.5" in page.get_attribute(".sv-plot[data-plot=speed] [role=img]", "aria-label")
    headings = page.evaluate("[...document.querySelectorAll('.sv-plots :is(h2, h3)')].map((h) => h.tagName)")
    assert headings == ["H2"] + 6 * ["H3"]


def test_live_and_recorded_plots_are_the_same_picture(open_plots: OpenPlots):
    events = story(12)
    recorded, live = open_plots(events), open_plots([], kind="live")
    show_round(recorded, 12)
    for event in events:
        live.evaluate("(event) => stage.take([event])", event)
    live.evaluate("stage.end()")
    for name in PLOTS:
        live.wait_for_selector(f".sv-plot[data-plot={name}][data-painted='12']")
        live.wait_for_function("document.querySelector('[data-plot=speed] .sv-plot-key').textContent.includes('21.5')")
    drawn = """[...document.querySelectorAll('.sv-plot-canvas')].map((n) => JSON.stringify(
        [n.data.map(({ x, y }) => [x, y]), n.layout.xaxis.range, n.layout.yaxis.range]))"""
    assert live.evaluate(drawn) == recorded.evaluate(drawn)


def test_plotly_comes_before_it_is_wanted_and_not_during_a_run(open_plots: OpenPlots):
    low = {"viewport": {"width": 1280, "height": 300}}
    page = open_plots(story(12), **low)
    page.wait_for_selector(".sv-plots[data-plotly=ready]", state="attached")
    assert page.evaluate("window.loads") == 1
    events = story(12)
    page = open_plots(events[:6], kind="live", **low)
    page.wait_for_timeout(1000)
    assert page.evaluate("window.loads") == 0
    page.evaluate("(events) => { stage.take(events); stage.end(); }", events[6:])
    page.wait_for_selector(".sv-plots[data-plotly=ready]", state="attached")
    assert page.evaluate("window.loads") == 1


def test_plots_that_come_into_sight_during_a_run_are_drawn(open_plots: OpenPlots):
    page = open_plots(story(12)[:6], kind="live", viewport={"width": 1280, "height": 300})
    page.evaluate("document.querySelector('.sv-plot').scrollIntoView()")
    page.wait_for_selector(".sv-plot[data-plot=acceptance][data-painted='4']")


def test_plots_out_of_sight_are_up_to_date_too(open_plots: OpenPlots):
    page = open_plots(story(12), viewport={"width": 1280, "height": 300})
    page.evaluate("stage.commands.scrub(12)")
    for name in PLOTS:
        page.wait_for_selector(f".sv-plot[data-plot={name}][data-painted='12']", state="attached")
    assert page.evaluate("document.querySelector('.sv-plot').getBoundingClientRect().top") > 300


def test_a_plot_that_comes_into_sight_is_drawn_at_once(open_plots: OpenPlots):
    page = open_plots(story(12), viewport={"width": 1280, "height": 300})
    page.evaluate("stage.commands.scrub(12)")
    for name in PLOTS:
        page.wait_for_selector(f".sv-plot[data-plot={name}][data-painted='12']", state="attached")
    seconds = page.evaluate(
        """async () => {
            stage.commands.scrub(5);
            const begun = performance.now();
            const plot = document.querySelector(".sv-plot");
            plot.scrollIntoView();
            while (plot.dataset.painted !== "5") await new Promise((resolve) => setTimeout(resolve, 5));
            return (performance.now() - begun) / 1000;
        }"""
    )
    assert seconds < 1  # a tenth on an idle machine; one out of sight may take two seconds


def test_on_a_phone_the_plots_are_folded_and_open_by_keyboard(open_plots: OpenPlots):
    page = open_plots(story(6), viewport={"width": 360, "height": 3600})
    assert page.evaluate("document.querySelector('.sv-plots').open") is False
    page.locator(".sv-plots summary").focus()
    page.keyboard.press("Enter")
    show_round(page, 6)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("width", [360, 700, 1280, 2560])
def test_plots_fit_their_place(open_plots: OpenPlots, width: int):
    page = open_plots(story(12), viewport={"width": width, "height": 4200})
    page.evaluate("document.querySelector('.sv-plots').open = true")
    show_round(page, 12)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    misfits = """[...document.querySelectorAll('.sv-plot')].filter((plot) => {
        const canvas = plot.querySelector('.sv-plot-canvas');
        const svg = canvas.querySelector('.main-svg').getBoundingClientRect();
        return Math.abs(svg.width - canvas.clientWidth) > 1 || plot.scrollWidth > plot.clientWidth + 1;
    }).length"""
    assert page.evaluate(misfits) == 0


def test_a_resized_page_redraws_its_plots(open_plots: OpenPlots):
    page = open_plots(story(12))
    show_round(page, 12)
    page.set_viewport_size({"width": 800, "height": 2600})
    page.wait_for_function(
        """[...document.querySelectorAll('.sv-plot-canvas')].every((canvas) =>
            Math.abs(canvas.querySelector('.main-svg').getBoundingClientRect().width - canvas.clientWidth) <= 1)"""
    )


def test_plots_follow_the_light(open_plots: OpenPlots):
    page = open_plots(story(12))
    show_round(page, 12)
    color = "document.querySelector('[data-plot=speed] .sv-plot-canvas').data.find((t) => t.mode === 'lines' && !t.line.dash).line.color"
    assert page.evaluate(color) == "#0072b2"
    page.evaluate("document.body.classList.add('dark')")
    page.wait_for_function(f"{color} === '#56b4e9'")
    page.evaluate("document.body.classList.remove('dark'); stage.node.dataset.theme = 'dark'")
    page.wait_for_function(f"{color} === '#56b4e9'")


def test_without_plotly_the_numbers_stay_and_a_line_says_why(open_plots: OpenPlots):
    page = open_plots(story(12), has_plotly=False)
    page.wait_for_selector(".sv-plots[data-plotly=failed]")
    assert "plotly.js did not load" in page.inner_text(".sv-plots-note")
    page.evaluate("""() => {
        window.notes = [];
        const note = document.querySelector('.sv-plots-note');
        new MutationObserver(() => window.notes.push(note.textContent)).observe(note, { childList: true, characterData: true, subtree: true });
        for (const hidden of [true, false]) document.querySelector('.sv-plots').open = !hidden;
    }""")
    page.evaluate("stage.commands.scrub(12)")
    page.wait_for_selector(".sv-plot[data-plot=acceptance][data-rounds='12']")
    assert "α" in page.inner_text(".sv-plot[data-plot=acceptance] .sv-plot-value")
    assert page.get_by_role("button", name="Save Acceptance per round as CSV").is_enabled()
    assert page.get_by_role("button", name="Save Acceptance per round as PNG").count() == 0
    page.wait_for_timeout(200)
    assert "Loading the plots" not in page.evaluate("window.notes")


def test_a_plot_is_saved_as_picture_and_as_numbers(open_plots: OpenPlots, tmp_path):
    events = story(12)
    page = open_plots(events)
    show_round(page, 8)
    files = {}
    for kind in ("PNG", "SVG", "CSV"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save Acceptance per round as {kind}").click()
        assert download.value.suggested_filename == f"specviz-fake-run-acceptance.{kind.lower()}"
        download.value.save_as(tmp_path / kind)
        files[kind] = (tmp_path / kind).read_bytes()
    assert files["PNG"].startswith(b"\x89PNG")
    svg = files["SVG"].decode("utf-8")
    assert svg.startswith("<svg")
    assert "Acceptance per round" in svg
    assert "accepted / judged" in svg
    rows = list(csv.DictReader(io.StringIO(files["CSV"].decode("utf-8"))))
    metrics = fold_metrics(event for event in events if event["type"] == "round" and event["round"] <= 8).metrics()
    assert len(rows) == 8
    assert float(rows[-1]["alpha"]) == pytest.approx(metrics["alpha"])


def test_a_round_chosen_in_a_plot_is_shown(open_plots: OpenPlots):
    page = open_plots(story(12))
    show_round(page, 12)
    canvas = page.locator(".sv-plot[data-plot=time] .sv-plot-canvas")
    spot = canvas.evaluate(
        """(n) => { const box = n.getBoundingClientRect(), { xaxis: x, yaxis: y } = n._fullLayout;
            return [box.left + x._offset + x.d2p(5), box.top + y._offset + y.d2p(y.range[1] / 3)]; }"""
    )
    page.mouse.move(*spot)
    page.wait_for_selector(".sv-plot[data-plot=time] .hovertext")
    assert page.text_content(".sv-plot[data-plot=time] .hovertext").startswith("round 5:")
    page.mouse.click(*spot)
    page.wait_for_selector(".sv-stage[data-round='5']")


def test_two_thousand_rounds_stay_few_shapes_and_few_drawings(open_plots: OpenPlots):
    page = open_plots(story(4)[:6], kind="live")
    page.wait_for_selector(".sv-plot[data-plot=sizes][data-painted='4']")
    result = page.evaluate(
        """async (events) => {
            const own = Plotly.react;
            const drawings = [];
            Plotly.react = (canvas, ...rest) => { drawings.push([canvas.closest(".sv-plot").dataset.plot, performance.now()]); return own(canvas, ...rest); };
            stage.begin("live");
            for (let at = 0; at < events.length; at += 15) {
                stage.take(events.slice(at, at + 15));
                await new Promise((resolve) => setTimeout(resolve, 1));
            }
            stage.end();
            return { drawings };
        }""",
        story(2000),
    )
    for name in PLOTS:
        page.wait_for_selector(f".sv-plot[data-plot={name}][data-painted='2000']")
        times = [at for plot, at in result["drawings"] if plot == name]
        assert all(later - earlier >= 99 for earlier, later in itertools.pairwise(times))
    assert (
        page.evaluate(
            "Math.max(...[...document.querySelectorAll('.sv-plot-canvas')].map((n) => n.querySelectorAll('*').length))"
        )
        < 1200
    )


def test_the_page_serves_plotly_itself_and_a_phone_asks_for_it_only_on_demand(open_page, served: ServedPage):
    page = open_page(reduced_motion="reduce", viewport={"width": 360, "height": 700})
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(served.url)
    page.wait_for_selector(".sv-stage[data-rounds='8']")
    page.wait_for_timeout(1000)
    assert not [url for url in asked if "plotly" in url.lower()]
    page.locator(".sv-plots summary").click()
    page.evaluate("document.querySelector('.sv-plot').scrollIntoView()")
    page.wait_for_selector(".sv-plots[data-plotly=ready]")
    assert [url for url in asked if "plotly" in url.lower()] == [served.url + PLOTLY_ADDRESS]
