"""Confidences against a direct computation, number by number."""

from __future__ import annotations

import math

import pytest
import torch

from specviz.early_exit import confidence
from specviz.early_exit.surety import rounded, surety_of
from tests.early_exit.exit_runs import NUM_LAYERS, PATHS, exit_run, exits_of, rounds_of, some_states, target_of
from tests.early_exit.references import reference_of_lean, reference_of_llama

LOGITS = [[2.0, -1.0, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0], [90.0, -90.0, 0.0, 3.0], [-1e30, 0.0, -1e30, -1e30]]


def directly(row):
    """Plain Python, in double precision."""
    exps = [math.exp(value - max(row)) for value in row]
    probs = sorted((value / sum(exps) for value in exps), reverse=True)
    nats = -sum(p * math.log(p) for p in probs if p > 0)
    return {"top1": probs[0], "gap": probs[0] - (probs[1] if len(probs) > 1 else 0.0), "entropy": nats}


@pytest.mark.parametrize("name", ["top1", "gap", "entropy"])
@pytest.mark.parametrize("rows", [LOGITS, [[1.0]]])
def test_they_are_what_their_definitions_say(name, rows):
    found = getattr(confidence, name)(torch.tensor(rows)).tolist()
    assert found == pytest.approx([directly(row)[name] for row in rows], abs=1e-6)


def test_a_token_that_cannot_come_adds_nothing_to_the_entropy():
    assert float(confidence.entropy(torch.tensor([[0.0, -torch.inf, 0.0]]))) == pytest.approx(math.log(2))


def test_saturation_is_a_cosine():
    a, b = some_states(seed=1), some_states(seed=2)
    expected = [float(x @ y / (x.norm() * y.norm())) for x, y in zip(a, b, strict=True)]
    assert confidence.saturation(a, b).tolist() == pytest.approx(expected, abs=1e-6)
    assert confidence.saturation(a, 7 * a).tolist() == pytest.approx([1.0] * 3, abs=1e-6)


@pytest.mark.parametrize(
    ("nats", "size", "expected"), [(0.0, 8, 1.0), (math.log(8), 8, 0.0), (math.log(2), 4, 0.5), (0.0, 1, 1.0)]
)
def test_an_entropy_as_a_confidence(nats, size, expected):
    assert surety_of(nats, size) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.12345, 0.1235), (0.12344999, 0.1234), (-0.00005, 0.0), (1.0, 1.0), (math.nan, 0.0), (math.inf, 0.0)],
)
def test_four_digits(value, expected):
    assert rounded(value) == expected


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("measure", ["top1", "gap", "entropy", "saturation"])
def test_what_a_run_tells_is_what_the_states_say(path, measure):
    """Against states that were computed without a cache; nothing leaves, so they are the plain model's."""
    target = target_of(path)
    reference = reference_of_llama(target._module) if path == "general" else reference_of_lean(target)
    run = exit_run(path, measure=measure, threshold=1.0, exit_layers=(2, 4), max_new_tokens=4)
    ids = list(run.prompt["token_ids"])
    for event in rounds_of(run):
        states = reference(ids, [NUM_LAYERS] * (len(ids) - 1))
        expected = []
        for layer in (2, 4):
            values = directly(target.read_out(states[layer - 1 : layer])[0].tolist())
            values["entropy"] = 1 - values["entropy"] / math.log(target.vocab_size)
            values["saturation"] = float(torch.cosine_similarity(states[layer - 1], states[layer - 2], dim=0))
            expected.append(values[measure])
        assert event["exit"]["confidences"] == pytest.approx(expected, abs=2e-4)
        ids += event["committed"]


def test_heads_take_time_that_is_told():
    assert all(exit["head_seconds"] > 0 for exit in exits_of(list(exit_run(threshold=1.0))))
