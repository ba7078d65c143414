"""The plots without a screen: their tables are the metrics, their figures hold numbers and own words only; in node."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from specviz.config import RunSettings
from specviz.metrics import fold_metrics
from tests.ui.fake_runs import drafted, extra, finished, prefill, round_event, started, story

InNode = Callable[..., Any]
Event = dict[str, Any]

NAMES = ["acceptance", "positions", "speed", "memory", "time", "sizes"]
THEME = {
    **dict.fromkeys(
        ("ink", "muted", "line", "ground", "target", "targetTint", "drafter", "drafterTint", "verify", "other"),
        "#123456",
    ),
    "family": "sans-serif",
    "size": 12,
}
FIGURES = """
    const state = SpecViz.reducer.fold(data.events);
    const numRounds = data.numRounds ?? state.rounds.length;
    return Object.fromEntries(SpecViz.plotSeries.NAMES.map((name) =>
        [name, SpecViz.plotFigures.figureOf(name, state, numRounds, data.theme)]));
"""
SAYINGS = """
    const state = SpecViz.reducer.fold(data.events);
    const numRounds = data.numRounds ?? state.rounds.length;
    return Object.fromEntries(SpecViz.plotSeries.NAMES.map((name) => [name, SpecViz.plotWords.sayingOf(name, state, numRounds)]));
"""


def saved(
    in_node: InNode, events: list[Event], num_rounds: int | None = None
) -> dict[str, list[dict[str, float | None]]]:
    """What each plot saves as CSV, read as any reader of CSV would."""
    texts = in_node(
        """const state = SpecViz.reducer.fold(data.events);
        const { NAMES, tableOf, csvOf } = SpecViz.plotSeries;
        return Object.fromEntries(NAMES.map((name) => [name, csvOf(tableOf(name, state, data.numRounds ?? undefined))]));""",
        {"events": events, "numRounds": num_rounds},
    )
    return {
        name: [
            {column: None if value == "" else float(value) for column, value in row.items()}
            for row in csv.DictReader(io.StringIO(text, newline=""))
        ]
        for name, text in texts.items()
    }


def rounds_of(events: list[Event], num_rounds: int | None = None) -> list[Event]:
    return [event for event in events if event["type"] == "round"][:num_rounds]


@pytest.mark.parametrize("num_rounds", [1, 5, 22, None])
def test_what_is_saved_are_the_metrics(in_node: InNode, num_rounds: int | None):
    events = story(23)
    tables = saved(in_node, events, num_rounds)
    rounds = rounds_of(events, num_rounds)
    assert list(tables) == NAMES
    for number, (acceptance, speed) in enumerate(zip(tables["acceptance"], tables["speed"], strict=True), start=1):
        fold = fold_metrics(rounds[:number])
        metrics, alone = fold.metrics(), fold_metrics([rounds[number - 1]])
        assert acceptance["alpha"] == pytest.approx(metrics["alpha"])
        assert acceptance["accepted_so_far"] == fold.counts["accepted"]
        assert (acceptance["accepted"], acceptance["judged"]) == (
            alone.counts["accepted"],
            alone.counts["accepted"] + alone.counts["rejected"],
        )
        assert acceptance["accepted_per_judged"] == pytest.approx(alone.metrics()["alpha"])
        assert speed["tokens_per_second"] == pytest.approx(metrics["tokens_per_second"])
        assert speed["plain_tokens_per_second"] == 21.5
    metrics = fold_metrics(rounds).metrics()
    assert [row["judged"] for row in tables["positions"]] == metrics["judged_by_position"]
    assert [row["conditional_acceptance"] for row in tables["positions"]] == pytest.approx(
        metrics["conditional_acceptance_by_position"]
    )
    assert [row["rounds"] for row in tables["sizes"]] == metrics["tokens_per_round_histogram"]
    spent = {part: sum(row[f"{part}_seconds"] for row in tables["time"]) for part in ("draft", "verify", "other")}
    shares = {part: seconds / sum(spent.values()) for part, seconds in spent.items()}
    assert shares == pytest.approx(metrics["time_shares"])


def test_the_memory_is_that_of_the_caches(in_node: InNode):
    events = story(12)
    table = saved(in_node, events)["memory"]
    for row, event in zip(table, rounds_of(events), strict=True):
        for cache in ("target", "draft"):
            use = event["cache"][cache]
            assert row[f"{cache}_bytes_after"] == use["bytes"]
            assert row[f"{cache}_bytes_at_peak"] == pytest.approx(use["bytes"] / use["after"] * use["peak"])


def test_the_tables_of_a_small_run(in_node: InNode):
    assert saved(in_node, story(3, identity=False)) == {
        "acceptance": [
            {"round": 1, "accepted": 4, "judged": 4, "accepted_per_judged": 1, "accepted_so_far": 4, "judged_so_far": 4, "alpha": 1},
            {"round": 2, "accepted": 2, "judged": 3, "accepted_per_judged": pytest.approx(2 / 3), "accepted_so_far": 6, "judged_so_far": 7, "alpha": pytest.approx(6 / 7)},
            {"round": 3, "accepted": 2, "judged": 2, "accepted_per_judged": 1, "accepted_so_far": 8, "judged_so_far": 9, "alpha": pytest.approx(8 / 9)},
        ],
        "positions": [
            {"position": 1, "accepted": 3, "judged": 3, "conditional_acceptance": 1},
            {"position": 2, "accepted": 3, "judged": 3, "conditional_acceptance": 1},
            {"position": 3, "accepted": 1, "judged": 2, "conditional_acceptance": 0.5},
            {"position": 4, "accepted": 1, "judged": 1, "conditional_acceptance": 1},
        ],
        "speed": [
            {"round": n, "committed_so_far": tokens, "seconds_so_far": pytest.approx(0.074 * n), "tokens_per_second": pytest.approx(tokens / (0.074 * n)), "plain_tokens_per_second": None}
            for n, tokens in ((1, 5), (2, 8), (3, 10))
        ],
        "memory": [
            {"round": 1, "target_bytes_at_peak": 13 * 23_040, "target_bytes_after": 13 * 23_040, "draft_bytes_at_peak": pytest.approx(13 * 4096), "draft_bytes_after": 13 * 4096},
            {"round": 2, "target_bytes_at_peak": 18 * 23_040, "target_bytes_after": 16 * 23_040, "draft_bytes_at_peak": pytest.approx(17 * 4096), "draft_bytes_after": 16 * 4096},
            {"round": 3, "target_bytes_at_peak": 21 * 23_040, "target_bytes_after": 18 * 23_040, "draft_bytes_at_peak": pytest.approx(20 * 4096), "draft_bytes_after": 18 * 4096},
        ],
        "time": [{"round": n, "draft_seconds": pytest.approx(0.012), "verify_seconds": pytest.approx(0.06), "other_seconds": pytest.approx(0.002)} for n in (1, 2, 3)],
        "sizes": [{"tokens_in_round": n, "rounds": rounds} for n, rounds in enumerate([0, 0, 1, 1, 0, 1])],
    }  # fmt: skip


def test_rows_over_several_rounds_add_up(in_node: InNode):
    events = story(101)
    table = in_node("return SpecViz.plotSeries.tableOf('acceptance', SpecViz.reducer.fold(data), 101, 7)", events)
    counts = fold_metrics(events).counts
    assert sum(row["accepted"] for row in table["rows"]) == counts["accepted"]
    assert sum(row["judged"] for row in table["rows"]) == counts["accepted"] + counts["rejected"]
    assert [(row["from"], row["round"]) for row in table["rows"]][-2:] == [(92, 98), (99, 101)]
    assert table["rows"][-1]["alpha"] == pytest.approx(fold_metrics(events).metrics()["alpha"])


def test_nothing_to_divide_by_and_nothing_measured_is_empty(in_node: InNode):
    nothing_drafted = round_event(1, 9, [], extra("plain", 1, "x"), has_draft_cache=False)
    untimed = {
        **nothing_drafted,
        "seconds": dict.fromkeys(("draft", "verify", "other")),
        "cache": {"target": None, "draft": None},
    }
    tables = saved(in_node, [started(), prefill(), untimed])
    assert tables["acceptance"][0]["alpha"] is None
    assert tables["acceptance"][0]["accepted_per_judged"] is None
    assert tables["speed"][0]["tokens_per_second"] is None
    assert tables["speed"][0]["plain_tokens_per_second"] is None
    assert set(tables["memory"][0].values()) == {1, None}
    assert set(tables["time"][0].values()) == {1, None}
    sayings = in_node(SAYINGS, {"events": [started(), prefill(), untimed]})
    assert sayings["acceptance"]["nothing"] == "Nothing was judged so far"
    assert sayings["speed"]["nothing"] == "This run recorded no times"
    assert sayings["memory"]["nothing"] == "This run recorded no caches"


@pytest.mark.parametrize(
    ("settings", "drafter", "ceiling"),
    [
        ({"num_draft_tokens": 4}, "draft_model", 5),
        ({"num_draft_tokens": "auto", "max_draft_tokens": 8}, "early_exit", 9),
        ({"num_draft_tokens": 4}, "none", 1),
        ({}, "draft_model", None),
    ],
)
def test_the_ceiling_is_k_and_one(in_node: InNode, settings: dict, drafter: str, ceiling: int | None):
    run = {**started(drafter=drafter), "settings": settings}
    assert in_node("return SpecViz.plotSeries.ceilingOf(SpecViz.reducer.fold(data))", [run]) == ceiling


def test_every_plot_says_its_denominator_and_where_its_numbers_come_from(in_node: InNode):
    words = in_node("return SpecViz.plotWords.PLOTS")
    assert list(words) == NAMES
    assert all("measured" in plot["source"] for plot in words.values())
    assert "derived" in words["memory"]["source"]
    assert words["acceptance"]["of"].startswith("accepted / judged")
    sayings = in_node(SAYINGS, {"events": story(23)})
    metrics = fold_metrics(story(23)).metrics()
    assert sayings["acceptance"]["value"] == f"α {metrics['alpha']:.2f}"
    assert sayings["speed"]["value"] == f"{metrics['tokens_per_second']:.1f}"
    assert "plain decoding: 21.5" in sayings["speed"]["summary"]
    assert sayings["sizes"]["value"] == f"mean {metrics['mean_tokens_per_round']:.2f}"
    assert "plain decoding: not measured" in in_node(SAYINGS, {"events": story(23, identity=False)})["speed"]["summary"]
    assert all(saying["summary"].endswith(".") for saying in sayings.values())


@pytest.mark.parametrize("num_rounds", [1, 3, 60])
def test_the_ceiling_stands_at_k_and_one_over_the_bar_that_reaches_it(in_node: InNode, num_rounds: int):
    events = story(num_rounds, settings=RunSettings(num_draft_tokens=4))
    figure = in_node(FIGURES, {"events": events, "theme": THEME})["sizes"]
    (line,) = figure["layout"]["shapes"]
    (bars,) = figure["data"]
    reached = dict(zip(bars["x"], bars["y"], strict=True)).get(5, 0)
    assert line["x0"] == line["x1"] == 5
    assert line["y1"] == figure["layout"]["yaxis"]["range"][1]
    assert line["y0"] == 0 if reached == 0 else reached < line["y0"] < 0.95 * line["y1"]


@pytest.mark.parametrize(("num_drafted", "step"), [(4, 1), (12, 1), (16, 2), (40, 4)])
def test_numbers_under_bars_are_thinned_and_stand_upright(in_node: InNode, num_drafted: int, step: int):
    event = round_event(1, 9, [drafted(1, " a", "accepted")] * num_drafted, extra("bonus", 2, " b"))
    axis = in_node(FIGURES, {"events": [started(), prefill(), event], "theme": THEME})["positions"]["layout"]["xaxis"]
    assert (axis["dtick"], axis["tickangle"]) == (step, 0)


def test_no_text_of_a_trace_gets_into_a_figure(in_node: InNode):
    evil = "<b>evil</b>"
    event = round_event(1, 9, [drafted(1, evil, "rejected")], extra("correction", 2, evil))
    run = started(evil)
    run["run_id"] = run["target"]["name"] = run["drafter"]["name"] = evil
    run["settings"]["note"] = evil
    figures = in_node(FIGURES, {"events": [run, prefill(), event, finished([event])], "theme": THEME})
    assert "evil" not in json.dumps(figures)


def test_a_long_run_has_no_more_points_than_a_plot_has_room_for(in_node: InNode):
    figures = in_node(FIGURES, {"events": story(2000), "theme": THEME})
    most = in_node("return SpecViz.plotFigures.MOST_ROWS")
    for figure in figures.values():
        assert all(len(trace["x"]) <= most for trace in figure["data"])


def test_the_axes_stand_still_while_a_recording_plays(in_node: InNode):
    events = story(60)
    early, late = (in_node(FIGURES, {"events": events, "theme": THEME, "numRounds": n}) for n in (3, 60))
    for name in NAMES:
        assert early[name]["layout"]["xaxis"] == late[name]["layout"]["xaxis"]
        assert early[name]["layout"]["yaxis"] == late[name]["layout"]["yaxis"]


def test_a_growing_run_widens_its_axis_seldom(in_node: InNode):
    events = story(200)
    ends = {
        in_node(FIGURES, {"events": events[: 2 + n], "theme": THEME})["acceptance"]["layout"]["xaxis"]["range"][1]
        for n in range(20, 201, 20)
    }
    assert len(ends) <= 8


def test_lines_differ_by_more_than_their_colour(in_node: InNode):
    figures = in_node(FIGURES, {"events": story(12), "theme": THEME})
    for name in ("speed", "memory"):
        marks = [entry["mark"] for entry in figures[name]["key"]]
        assert len(set(marks)) == len(marks)
