"""Simulated exits: from the confidences of a map run, against the runs themselves."""

from __future__ import annotations

import pytest

from specviz.early_exit.simulate import exits_at, simulate
from tests.early_exit.exit_runs import NUM_LAYERS, PATHS, exit_run, exits_of, rounds_of, target_of

EVERY = (1, 2, 3, 4, 5)


def map_rounds(path="general", **more):
    return rounds_of(exit_run(path, kind="map", **more))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("measure", "threshold"), [("top1", 0.08), ("gap", 0.05), ("entropy", 0.11), ("saturation", 0.85)]
)
def test_up_to_its_first_exit_a_timed_run_does_what_was_simulated(path, measure, threshold):
    rounds = map_rounds(path)
    size = target_of(path).vocab_size
    simulated = exits_at(rounds, measure, threshold, EVERY, cut_vocab_size=size)
    real = [exit["layer"] for exit in exits_of(list(exit_run(path, measure=measure, threshold=threshold)))]
    first = next((i for i, layer in enumerate(simulated) if layer < NUM_LAYERS), len(simulated) - 1)
    assert real[: first + 1] == simulated[: first + 1]


def a_round(values, ids=(7, 7, 8, 8)):
    measures = dict.fromkeys(("top1", "gap", "entropy", "saturation"), values)
    return {"map": {"measures": measures, "ids": list(ids)}}


ROUNDS = [a_round([0.2, 0.5, 0.9, 0.1]), a_round([None, 0.8, 0.1, 0.3]), a_round([0.1, 0.1, 0.1, 0.1])]


@pytest.mark.parametrize(
    ("threshold", "layers", "min_layer", "expected"),
    [
        (0.5, (1, 2, 3), 1, [2, 2, 4]),
        (0.5, (1, 3), 1, [3, 4, 4]),
        (0.5, (1, 2, 3), 3, [3, 4, 4]),
        (0.0, (1, 2, 3), 1, [1, 1, 1]),
        (None, (1, 2, 3), 1, [4, 4, 4]),
        (1.0, (1, 2, 3), 1, [4, 4, 4]),
    ],
)
def test_a_token_leaves_at_the_first_layer_that_is_sure_enough(threshold, layers, min_layer, expected):
    assert exits_at(ROUNDS, "top1", threshold, layers, min_layer, cut_vocab_size=10) == expected


def test_entropies_are_turned_into_confidences():
    rounds = [a_round([2.0, 1.0, 0.1, 0.0])]  # of at most log(10) = 2.303 nats
    assert exits_at(rounds, "entropy", 0.5, (1, 2, 3), cut_vocab_size=10) == [2]


def test_a_threshold_that_falls_lets_later_tokens_leave():
    rounds = [a_round([0.46, 0.1, 0.1, 0.1])] * 20
    assert exits_at(rounds, "top1", 0.5, (1,), decay=5.0, max_new_tokens=20, cut_vocab_size=10)[::19] == [4, 1]


def test_what_follows_from_it():
    found = simulate(ROUNDS, "top1", 0.5, (1, 2, 3), cut_vocab_size=10)
    assert (found.layers, found.agreed) == ((2, 2, 4), (False, False, True))
    assert found.mean_layers == pytest.approx(8 / 3)
    assert found.agreement == pytest.approx(1 / 3)
    assert simulate([], "top1", 0.5, (1,), cut_vocab_size=10).mean_layers is None
