"""Early-exit decoding on both paths: what leaves, what is left behind for later tokens, and what stays plain decoding."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

import pytest
import torch

from specviz.config import RunSettings
from specviz.early_exit.exit_heads import PlainHeads
from specviz.early_exit.exit_run import ExitRun
from specviz.early_exit.exit_settings import ExitSettings, decayed
from specviz.early_exit.surety import rounded
from specviz.engine.hf_model import TransformersModel
from specviz.engine.layerwise import Onward
from specviz.engine.loader import ModelPair
from specviz.runs import Run
from tests.early_exit.exit_runs import (
    NUM_LAYERS,
    PATHS,
    committed_of,
    exit_run,
    exits_of,
    module,
    pair_of,
    plain_ids,
    rounds_of,
    target_of,
)
from tests.early_exit.references import decode_slowly, reference_of_lean, reference_of_llama
from tests.engine.runs import byte_vocabulary
from tests.tiny_models import FAMILIES, tiny_model

PROMPTS = [f"{word} number {n}" for n, word in enumerate(["hello", "naïve 👩‍🚀", "a", "x" * 40, "The river"] * 4)]
any_path = pytest.mark.parametrize("path", PATHS)


def reference_of(path):
    return reference_of_llama(module()) if path == "general" else reference_of_lean(target_of(path))


def read_out_of(path):
    return lambda layer, states: target_of(path).read_out(states)


@any_path
def test_at_the_last_layer_an_exit_is_the_model_itself(path):
    target = target_of(path)
    heads = exit_run(path).plan.heads
    ids = list(range(40, 60))
    whole = target.forward(ids, target.new_cache()).logits
    states = target.forward_by_layer(ids, target.new_cache()).states
    for logits in (heads.full_logits(NUM_LAYERS, states), heads.cut_logits(NUM_LAYERS, states)):
        torch.testing.assert_close(logits.softmax(-1), whole.float().softmax(-1), atol=1e-5, rtol=0)


@any_path
def test_never_leaving_is_plain_decoding(path):
    for prompt in PROMPTS:
        run = exit_run(path, prompt, threshold="never")
        exits = exits_of(list(run))
        assert run.result.token_ids == plain_ids(path, prompt)
        assert {exit["layer"] for exit in exits} == {NUM_LAYERS}
        assert all(exit["confidences"] == [] and exit["head_seconds"] == 0 for exit in exits)


@any_path
def test_a_threshold_that_nothing_reaches_is_plain_decoding_too(path):
    run = exit_run(path, threshold=1.0)
    exits = exits_of(list(run))
    assert all(max(exit["confidences"]) < 1 for exit in exits)
    assert run.result.token_ids == plain_ids(path)


@any_path
@pytest.mark.parametrize("layer", [1, 3, 5])
def test_always_leaving_is_what_a_decoder_without_a_cache_does(path, layer):
    run = exit_run(path, threshold=0.0, exit_layers=(layer,))
    exits = exits_of(list(run))
    expected, _ = decode_slowly(
        reference_of(path), read_out_of(path), lambda states, index: layer, run.prompt["token_ids"], 20
    )
    assert run.result.token_ids == expected
    assert {exit["layer"] for exit in exits} == {layer}


@any_path
@pytest.mark.parametrize("threshold", [0.06, 0.09])
def test_leaving_where_it_is_sure_is_what_a_decoder_without_a_cache_does(path, threshold):
    read_out, exit_layers = read_out_of(path), (2, 3, 5)

    def leaves(states, index):
        for layer in exit_layers:
            if rounded(float(read_out(layer, states[layer - 1 : layer]).softmax(-1).max())) >= threshold:
                return layer
        return NUM_LAYERS

    run = exit_run(path, threshold=threshold, exit_layers=exit_layers)
    exits = exits_of(list(run))
    expected = decode_slowly(reference_of(path), read_out, leaves, run.prompt["token_ids"], 20)
    assert (run.result.token_ids, [exit["layer"] for exit in exits]) == expected
    assert len(set(expected[1])) > 1, "some leave and some do not"


@any_path
def test_the_skipped_layers_are_not_run(path, monkeypatch):
    target, num_run = target_of(path), []
    if path == "general":
        for layer in module().model.layers:
            monkeypatch.setattr(layer.mlp, "forward", counted(layer.mlp.forward, num_run))
    else:
        monkeypatch.setattr(target, "run_layer", counted(target.run_layer, num_run))
    cache = target.new_cache()
    target.forward_by_layer([5], cache, lambda layer, states: Onward.LEAVE, look_after=(2,))
    assert len(num_run) == 2
    assert cache.length == 1


def counted(function, calls):
    def call(*args, **kwargs):
        calls.append(1)
        return function(*args, **kwargs)

    return call


@any_path
def test_a_run_never_changes_what_another_sees(path):
    target = target_of(path)
    ids = list(range(30, 50))
    before = target.forward(ids, target.new_cache()).logits
    ways = ({"threshold": 0.0}, {"threshold": 0.07}, {"kind": "map"})
    alone = [committed_of(exit_run(path, **way)) for way in ways]
    together = [[] for _ in ways]
    for events in zip_longest(*(exit_run(path, **way) for way in ways)):  # in turn, an event each
        for said, event in zip(together, events, strict=True):
            if event and event["type"] == "round":
                said.append(event["committed"])
    assert together == alone
    assert torch.equal(target.forward(ids, target.new_cache()).logits, before)


@any_path
def test_a_map_run_says_what_plain_decoding_says_and_reads_every_layer(path):
    run = exit_run(path, kind="map", threshold=0.07)
    rounds = rounds_of(run)
    assert run.result.token_ids == plain_ids(path)
    for event in rounds:
        assert event["exit"]["layer"] == NUM_LAYERS
        assert event["map"]["ids"][-1] == event["committed"][0]
        assert [len(values) for values in event["map"]["measures"].values()] == [NUM_LAYERS] * 4
    assert run.result.metrics["mean_layers_per_token"] == NUM_LAYERS


@any_path
def test_a_sampled_run_depends_on_its_seed_alone(path):
    texts = [committed_of(exit_run(path, threshold=0.07, temperature=1.0, seed=seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_sampling_without_exits_is_plain_sampling():
    run = exit_run(threshold="never", temperature=1.0, seed=3)
    list(run)
    assert run.result.token_ids == plain_ids("general", temperature=1.0, seed=3)


def test_what_a_run_forbids_is_not_said_at_any_layer():
    said = set(plain_ids("general"))
    run = exit_run(threshold=0.0, suppress_token_ids=tuple(said), repetition_penalty=1.3)
    list(run)
    assert not said & set(run.result.token_ids)


def test_what_leaves_early_comes_from_the_cut_vocabulary():
    cut = {40, 50, 60}
    run, forbidden = exit_run(threshold=0.0), exit_run(threshold=0.0, suppress_token_ids=tuple(cut))
    for each in (run, forbidden):
        each.plan = replace(each.plan, heads=PlainHeads(target_of("general"), torch.tensor(sorted(cut))))
        list(each)
    assert set(run.result.token_ids) <= cut
    assert not cut & set(forbidden.result.token_ids), "where all of the cut is forbidden, the whole head is asked"


@pytest.mark.parametrize("tau", [0.0, 4.0])
def test_the_threshold_in_force_is_told(tau):
    exits = exits_of(list(exit_run(threshold=0.5, threshold_decay=tau)))
    assert [exit["threshold"] for exit in exits] == [decayed(0.5, tau, index, 20) for index in range(20)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_leaves_early(family):
    pair = ModelPair(TransformersModel(tiny_model(family), family), byte_vocabulary(), None, frozenset())
    settings = RunSettings(max_new_tokens=16, drafter="none")
    plain = Run(pair, "hello", settings, raw=True)
    list(plain)
    for exits, layers in ((ExitSettings(threshold="never"), {3}), (ExitSettings(threshold=0.0, exit_layers=(2,)), {2})):
        run = ExitRun(pair, "hello", settings, exits, raw=True)
        assert {exit["layer"] for exit in exits_of(list(run))} == layers
        if layers == {3}:
            assert run.result.token_ids == plain.result.token_ids


def test_a_cancelled_run_ends_as_cancelled():
    run = exit_run(max_new_tokens=100, threshold=0.07)
    for event in run:
        if event["type"] == "round" and event["round"] == 3:
            run.cancel()
    assert (run.result.reason, len(run.result.token_ids)) == ("cancelled", 3)


def test_the_pair_opens_its_heads_once():
    assert (
        exit_run().plan.heads
        is exit_run().plan.heads
        is pair_of("general").exit_heads.get(target_of("general"), "auto")
    )
