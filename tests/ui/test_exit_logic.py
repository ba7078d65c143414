"""The board of the Early exit tab without a screen: the rule against Python's own, the bench, the work, the race, the words."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from specviz.early_exit.simulate import simulate
from specviz.trace.sentences import exit_sentence
from tests.ui.exit_traces import CUT, EXIT_LAYERS, NUM_LAYERS, map_run, part_of, plain_run, series, timed_run

InNode = Callable[..., Any]
MEASURES = ("top1", "gap", "entropy", "saturation")


def random_case(dice: random.Random) -> dict[str, Any]:
    """A made-up map and a rule for it, corners included."""
    num_layers, cut = dice.randint(2, 32), dice.choice((1, 2, 50, 8192))
    rounds = [{"map": random_map(dice, num_layers, cut)} for _ in range(dice.randint(0, 25))]
    layers = sorted(dice.sample(range(1, num_layers), dice.randint(0, num_layers - 1)))
    threshold = dice.choice((None, 0.0, 1.0, round(dice.random(), 2), round(dice.random(), 4)))
    return {
        "rounds": rounds, "num_layers": num_layers, "cut": cut, "measure": dice.choice(MEASURES), "threshold": threshold,
        "layers": layers, "min_layer": dice.randint(1, num_layers), "decay": dice.choice((0.0, 0.0, 3.0, 50.0)),
        "max_new_tokens": dice.randint(1, 40),
    }  # fmt: skip


def random_map(dice: random.Random, num_layers: int, cut: int) -> dict[str, Any]:
    def readings(largest: float) -> list[float | None]:
        return [None if dice.random() < 0.1 else round(dice.random() * largest, 4) for _ in range(num_layers)]

    ids = [None if dice.random() < 0.05 else dice.randint(0, 3) for _ in range(num_layers)]
    measures = {name: readings(math.log(cut) if name == "entropy" else 1.0) for name in MEASURES}
    return {"measures": measures, "ids": ids, "texts": [str(one) for one in ids]}


SIMULATE = """
  const { confidencesOf, exitsAt, outcomeOf } = SpecViz.exitRule;
  return data.map((one) => {
    const maps = one.rounds.map((round) => round.map);
    const rule = { measure: one.measure, threshold: one.threshold, exitLayers: one.layers, minLayer: one.min_layer, decay: one.decay,
      numLayers: one.num_layers, cutSize: one.cut, numTokens: one.max_new_tokens };
    const exits = exitsAt(maps.map((map) => confidencesOf(map, one.measure, one.cut)), rule);
    return { exits, ...outcomeOf(maps, exits, one.num_layers) };
  });
"""


def test_the_board_simulates_what_python_does(in_board_node: InNode):
    dice = random.Random(6)
    cases = [random_case(dice) for _ in range(400)]
    for case, on_board in zip(cases, in_board_node(SIMULATE, cases), strict=True):
        ours = simulate(
            case["rounds"],
            case["measure"],
            case["threshold"],
            case["layers"],
            case["min_layer"],
            case["decay"],
            max_new_tokens=case["max_new_tokens"],
            cut_vocab_size=case["cut"],
        )
        assert on_board["exits"] == list(ours.layers)
        assert on_board["meanLayers"] == ours.mean_layers
        assert on_board["agreement"] == ours.agreement


def test_a_simulation_of_the_run_s_own_rule_is_that_run_up_to_where_the_text_departs(in_board_node: InNode):
    body = """
      const bench = SpecViz.exitBench.emptyBench();
      data.forEach((event) => SpecViz.exitBench.take(bench, event));
      const simulation = SpecViz.exitSimulation.createSimulation();
      simulation.follow(bench.map.state);
      simulation.adopt(bench.timed[0].state);
      return [simulation.exits, SpecViz.exitBench.exitLayersOf(bench.timed[0].state), simulation.curve().at(-1)];
    """
    simulated, real, never = in_board_node(body, series("pair", ["map", "timed"]))
    assert simulated == real
    assert never["threshold"] is None
    assert (never["layersSaved"], never["agreement"]) == (0, 1)


def test_a_map_that_grows_is_taken_in_once(in_board_node: InNode):
    body = """
      const bench = SpecViz.exitBench.emptyBench();
      const simulation = SpecViz.exitSimulation.createSimulation();
      const sizes = data.map((event) => {
        SpecViz.exitBench.take(bench, event);
        simulation.follow(bench.map ? bench.map.state : null);
        return simulation.exits.length;
      });
      simulation.choose({ measure: "entropy", threshold: 0.2 });
      return [sizes, simulation.exits.length, simulation.chosen.measure];
    """
    sizes, after, measure = in_board_node(body, series("pair", ["map"], num_tokens=5))
    assert sizes == [0, 0, 0, 0, 1, 2, 3, 4, 5, 5]
    assert (after, measure) == (5, "entropy")


def test_a_new_pair_begins_the_bench_anew_and_the_others_do_not(in_board_node: InNode):
    body = """
      const bench = SpecViz.exitBench.emptyBench();
      return data.map((series) => {
        series.forEach((event) => SpecViz.exitBench.take(bench, event));
        return [Boolean(bench.map), bench.timed.length, bench.beside.map((part) => part.role), SpecViz.exitBench.partsOf(bench).length];
      });
    """
    pair, real = series("pair", ["map", "timed"], num_tokens=3), series("real", ["timed"], num_tokens=3)
    beside = series("beside", ["plain", "early_exit"], num_tokens=3)
    sweep = series("sweep", ["sweep", "sweep"], num_tokens=3)
    assert in_board_node(body, [pair, real, beside, beside, sweep, sweep, pair]) == [
        [True, 1, [], 2],
        [True, 2, [], 3],
        [True, 2, ["plain", "early_exit"], 5],
        [True, 2, ["plain", "early_exit"], 5],
        [True, 2, ["plain", "early_exit"], 7],
        [True, 2, ["plain", "early_exit"], 7],
        [True, 1, [], 2],
    ]


def test_a_speed_is_told_against_plain_decoding_in_the_same_run(in_board_node: InNode):
    body = """
      const theme = { size: 10 };
      const points = [[0.9, 24, 1.1], [0.3, 12, 0.8], [0.5, 18, null]].map(([threshold, meanLayers, speedup]) => ({ threshold, measure: "x", meanLayers, speedup }));
      const figure = SpecViz.tradeoffFigures.speedFigure({ points, numLayers: 30, curve: [], theme });
      const [plain, measured] = figure.data;
      return [plain.y, measured.x, measured.y, figure.yaxis.ticksuffix];
    """
    assert in_board_node(body, None) == [[1, 1], [12, 24], [0.8, 1.1], "×"]


@pytest.mark.parametrize(
    ("role", "passes", "positions"),
    [("plain", 30.0, 30.0), ("drafted", 7.5, 30.0), ("self_speculation", (30 + 3 * 18) / 4, 30.0)],
)
def test_how_much_of_the_target_a_run_has_run(in_board_node: InNode, role: str, passes: float, positions: float):
    work = in_board_node("return SpecViz.layerWork.workOf(SpecViz.reducer.fold(data))", part_of(role, 60))
    assert (work["passesPerToken"], work["positionsPerToken"]) == (passes, positions)


def test_the_work_of_an_early_exit_run_is_the_layers_it_ran(in_board_node: InNode):
    events = timed_run(50)
    work = in_board_node("return SpecViz.layerWork.workOf(SpecViz.reducer.fold(data))", events)
    assert work["passes"] == sum(event["exit"]["layer"] for event in events if event["type"] == "round")
    assert (
        work["passesPerToken"]
        == next(e for e in events if e["type"] == "run_finished")["metrics"]["mean_layers_per_token"]
    )


def test_drafting_whose_layers_are_run_again_counts_them_twice(in_board_node: InNode):
    events = part_of("self_speculation", 60)
    del events[0]["drafter"]["exit_heads"]
    work = in_board_node("return SpecViz.layerWork.workOf(SpecViz.reducer.fold(data))", events)
    assert work["positionsPerToken"] == 30 + 3 * 18 / 4


def test_the_race_shows_what_stood_there_at_each_moment(in_board_node: InNode):
    body = """
      const state = SpecViz.reducer.fold(data);
      const clock = SpecViz.race.clockOf(state);
      const middle = (clock[3] + clock[4]) / 2;
      return [0, clock[0] / 2, middle, 1e9].map((seconds) => SpecViz.race.tokensAt(state, clock, seconds));
    """
    assert in_board_node(body, plain_run(20)) == [0, 0, 4, 20]
    assert in_board_node(body, part_of("drafted", 20)) == [0, 0, 16, 20]


def test_a_cell_of_the_map_is_found_where_it_is_drawn(in_board_node: InNode):
    body = """
      const found = [];
      for (const form of ["words", "cells"]) {
        const geometry = SpecViz.mapGeometry.createGeometry(form, 30, 1.2);
        for (const [index, layer, scrolled] of data) {
          const x = geometry.left(index) - scrolled + geometry.column / 2;
          found.push(geometry.cellAt(x, geometry.top(layer) + geometry.row / 2, scrolled, 40));
        }
        found.push(geometry.cellAt(geometry.gutter - 2, geometry.top(3), 0, 40), geometry.cellAt(geometry.left(40) + 1, geometry.top(3), 0, 40));
      }
      return found;
    """
    cells = [[0, 1, 0], [0, 30, 0], [39, 17, 500], [12, 9, 130]]
    expected = [{"index": index, "layer": layer} for index, layer, _ in cells]
    assert in_board_node(body, cells) == [*expected, None, None, *expected, None, None]


def test_the_fates_of_a_column(in_board_node: InNode):
    body = """
      return data.map(([layer, exit, isLookedAt, canExit]) => SpecViz.exitWords.fateOf({
        layer, exit, isLookedAt, canExit, numLayers: 30, confidence: 0.4321, threshold: 0.6 }).kind);
    """
    column = [
        [30, 18, False, False],
        [18, 18, True, True],
        [14, 18, True, True],
        [9, 18, False, False],
        [30, 30, False, False],
    ]
    assert in_board_node(body, column) == ["skipped", "exit", "stays", "unread", "last"]


# ---- an early-exit trace on the stage of the Watch tab ----


def test_the_stage_tells_an_exit_as_the_terminal_does(in_node: InNode):
    events = [*timed_run(40), *map_run(3)]
    rounds = [event for event in events if event["type"] == "round"]
    said = in_node("return data.map((event) => SpecViz.sentence.ofExit(event, 30))", rounds)
    assert said == [exit_sentence(event, NUM_LAYERS).replace("␊", "⏎") for event in rounds]


def test_the_stage_counts_layers_and_exits(in_node: InNode):
    events = timed_run(40)
    layers = [event["exit"]["layer"] for event in events if event["type"] == "round"]
    body = "const { totals } = SpecViz.reducer.fold(data).rounds.at(-1); return [totals, SpecViz.figures.figuresOf(totals)]"
    totals, figures = in_node(body, events)
    assert (totals["layersRun"], totals["leftEarly"]) == (sum(layers), sum(layer < NUM_LAYERS for layer in layers))
    assert figures["meanLayers"] == sum(layers) / 40


def test_a_speculative_run_has_no_layers_a_token(in_node: InNode):
    body = "return SpecViz.figures.figuresOf(SpecViz.reducer.fold(data).rounds.at(-1).totals).meanLayers"
    assert in_node(body, part_of("drafted", 20)) is None


def test_the_inspector_knows_what_each_layer_was_asked(in_node: InNode):
    events = timed_run(40)
    number, event = next((e["round"], e) for e in events if e["type"] == "round" and 10 < e["exit"]["layer"] < 30)
    body = """
      const state = SpecViz.reducer.fold(data[0]);
      const inspection = SpecViz.inspection.inspect(state, { round: data[1], place: "extra" });
      return [inspection.exit, SpecViz.inspectionWords.verdictSentence(inspection), SpecViz.inspection.inspect(SpecViz.reducer.fold(data[2]), { round: 1, place: "extra" }).exit];
    """
    exit_, words, none = in_node(body, [events, number, plain_run(3)])
    assert [look["confidence"] for look in exit_["looks"]] == event["exit"]["confidences"]
    assert [look["layer"] for look in exit_["looks"]] == list(EXIT_LAYERS[: len(exit_["looks"])])
    assert words == f"The token left after layer {event['exit']['layer']} of 30: nothing checked it."
    assert none is None


def test_the_made_up_maps_have_entropies_in_nats():
    values = map_run(2)[2]["map"]["measures"]["entropy"]
    assert all(0 <= value <= math.log(CUT) for value in values)


def test_a_rule_in_words_names_its_measure(in_board_node: InNode):
    rules = [{"measure": "entropy", "threshold": 0.6}, {"measure": "saturation", "threshold": None}]
    assert in_board_node("return data.map(SpecViz.exitWords.ruleWords)", rules) == [
        "entropy ≥ 0.60",
        "saturation, never exits",
    ]
