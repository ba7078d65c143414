"""Runs leave nothing behind, and do not see each other: memory, threads, generators, models, two runs at once."""

from __future__ import annotations

import gc
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from specviz.config import RunSettings
from specviz.engine.hf_model import TransformersModel
from specviz.engine.loader import ModelPair
from specviz.runs import Run
from tests.engine.runs import DRAFTING, byte_vocabulary, rounds, tiny_draft, tiny_target
from tests.tiny_models import NUM_LAYERS, tiny_model

KINDS = (*DRAFTING, "none")


def tiny_pair() -> ModelPair:
    return ModelPair(tiny_target(), byte_vocabulary(), tiny_draft(), frozenset())


def run_of(kind: str, prompt: str = "hello world", **settings) -> Run:
    settings = {
        "num_draft_tokens": 3,
        "max_new_tokens": 10,
        "min_ngram": 1,
        "exit_layer": 1,
        "temperature": 0.8,
    } | settings
    return Run(tiny_pair(), prompt, RunSettings(drafter=kind, **settings), raw=True, live_drafts=True)


def live_tensor_bytes() -> int:
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def open_generators() -> int:
    gc.collect()
    generators = [thing for thing in gc.get_objects() if type(thing) is types.GeneratorType]
    return sum("specviz" in generator.gi_code.co_filename for generator in generators if generator.gi_frame is not None)


def stop_after_round(run: Run, number: int, how: str) -> None:
    """Start the run, and stop it after a round, as a page does: by leaving, closing, or cancelling it."""
    stream = iter(run)
    for event in stream:
        if event["type"] == "round" and event["round"] == number:
            if how == "cancel":
                run.cancel()
                list(stream)
            elif how == "close":
                stream.close()
            return


@pytest.mark.parametrize("kind", KINDS)
def test_fifty_runs_and_twenty_stopped_ones_leave_nothing_behind(kind):
    # gradio-app/gradio #8503, #13162; ggml-org/llama.cpp #27155.
    list(run_of(kind))
    before = live_tensor_bytes(), open_generators(), threading.active_count()
    for seed in range(50):
        list(run_of(kind, seed=seed))
    for seed in range(20):
        stop_after_round(run_of(kind, seed=seed), 2, how=("leave", "close", "cancel")[seed % 3])
    assert (live_tensor_bytes(), open_generators(), threading.active_count()) == before


@pytest.mark.parametrize("how", ["leave", "close", "cancel"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_does_not_touch_the_next(kind, how):
    alone = timeless(list(run_of(kind)))
    stop_after_round(run_of(kind, prompt="quite another prompt"), 2, how)
    assert timeless(list(run_of(kind))) == alone


def test_a_run_is_cancelled_from_another_thread():
    run = run_of("draft_model", max_new_tokens=100)
    has_begun = threading.Event()

    def cancel_when_begun() -> None:
        has_begun.wait(10)
        run.cancel()

    thread = threading.Thread(target=cancel_when_begun)
    thread.start()
    for event in run:
        if event["type"] == "round" and event["round"] == 2:
            has_begun.set()
            thread.join()
    assert run.result.reason == "cancelled"
    assert 2 <= run.result.counts["rounds"] <= 3


def timeless(events: list[dict]) -> list[dict]:
    """What of a run's events is decided by its settings (all but times and names)."""
    kept = [event for event in events if event["type"] in ("round", "draft_token", "run_finished")]
    return [{key: value for key, value in event.items() if key not in ("t", "seconds", "metrics")} for event in kept]


# --- two at once ------------------------------------------------------------------------------

CROWD = [
    ("early_exit", "AAAA", 2),
    ("draft_model", "BBBB", 5),
    ("prompt_lookup", "ABABABAB", 3),
    ("early_exit", "BBBB", 7),
    ("none", "AAAA", 0),
    ("draft_model", "AAAA", 1),
]


def crowd_run(kind: str, prompt: str, k: int) -> Run:
    return run_of(kind, prompt=prompt, num_draft_tokens=k, max_new_tokens=24, exit_layer=1 + k % 2)


def test_interleaved_runs_on_one_pair_do_not_mix():
    # gradio-app/gradio #10462, #4558: one visitor's context in another's answer.
    alone = [timeless(list(crowd_run(*arguments))) for arguments in CROWD]
    streams = [iter(crowd_run(*arguments)) for arguments in CROWD]
    together: list[list[dict]] = [[] for _ in CROWD]
    while streams_left := [i for i, stream in enumerate(streams) if stream is not None]:
        for i in streams_left:
            event = next(streams[i], None)
            if event is None:
                streams[i] = None
            else:
                together[i].append(event)
    assert [timeless(events) for events in together] == alone


def test_runs_in_threads_on_one_pair_do_not_mix():
    alone = [timeless(list(crowd_run(*arguments))) for arguments in CROWD]
    barrier = threading.Barrier(len(CROWD))

    def one(arguments: tuple[str, str, int]) -> list[dict]:
        run = crowd_run(*arguments)
        barrier.wait(10)
        return list(run)

    for _ in range(3):
        with ThreadPoolExecutor(len(CROWD)) as pool:
            assert [timeless(events) for events in pool.map(one, CROWD)] == alone


def test_two_runs_keep_their_own_k_and_prompt():
    first, second = crowd_run("draft_model", "AAAA", 2), crowd_run("draft_model", "BBBB", 5)
    streams = zip(first, second, strict=False)
    pairs = list(streams)
    assert pairs[0][0]["prompt"]["text"] == "AAAA"
    assert pairs[0][1]["prompt"]["text"] == "BBBB"
    assert max(len(event["draft"]) for event in rounds([a for a, _ in pairs])) <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_changes_nothing_of_the_shared_models(kind):
    modules = [tiny_model(), tiny_draft()._module]
    before = [snapshot(module) for module in modules]
    stream = iter(run_of(kind, exit_layer=1))
    for event in stream:
        if event["type"] in ("draft_token", "round"):
            assert [snapshot(module) for module in modules] == before, "not for a moment"
    assert [snapshot(module) for module in modules] == before


def snapshot(module: torch.nn.Module) -> tuple:
    weights = [(name, id(weight), weight._version) for name, weight in module.named_parameters()]
    layers = len(module.model.layers)
    return str(module.config.to_dict()), layers, weights, module.training


def test_an_early_exit_in_hand_leaves_the_layer_count_of_others_alone():
    early = iter(crowd_run("early_exit", "AAAA", 3))
    while next(early)["type"] != "draft_token":
        pass
    assert len(tiny_model().model.layers) == tiny_model().config.num_hidden_layers == NUM_LAYERS
    other = TransformersModel(tiny_model(), "again")
    assert other.num_layers == NUM_LAYERS
    assert timeless(list(crowd_run("none", "BBBB", 0))) == timeless(list(crowd_run("none", "BBBB", 0)))
