"""The cache of the lean path: cut, grown, seen through its first layers, and never shared by two runs."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from specviz.config import RunSettings
from specviz.engine.layerwise import LayerStates, Onward
from specviz.engine.lean_cache import FIRST_CAPACITY, LeanKVCache
from specviz.engine.lean_model import LeanModel
from specviz.engine.loader import ModelPair
from specviz.runs import Run
from tests.engine.lean_models import lean_int8, some_ids, tiny_lean_draft, tiny_lean_target
from tests.engine.runs import DRAFTING, byte_vocabulary
from tests.engine.test_shared_state import CROWD, timeless

LAYERS, HEADS, HEAD_DIM = 3, 2, 4


def cache_of(length: int, max_positions: int = 2000) -> LeanKVCache:
    cache = LeanKVCache(LAYERS, HEADS, HEAD_DIM, max_positions)
    cache.reserve(length)
    cache.keys[:, :, :length] = np.arange(length)[:, None]
    cache.values[:, :, :length] = -np.arange(length)[:, None]
    cache.advance(length)
    return cache


@pytest.mark.parametrize("length", [0, 1, 9, 10])
def test_a_cut_is_to_an_absolute_length(length):
    cache = cache_of(10)
    cache.truncate(length)
    cache.truncate(length)
    assert cache.length == length
    assert cache.num_bytes == 2 * LAYERS * HEADS * HEAD_DIM * 4 * length


@pytest.mark.parametrize("length", [-1, 11])
def test_it_is_never_cut_to_what_it_does_not_hold(length):
    with pytest.raises(AssertionError):
        cache_of(10).truncate(length)


@pytest.mark.parametrize("length", [FIRST_CAPACITY + 1, FIRST_CAPACITY + 300, 2000])
def test_what_is_held_survives_growing(length):
    cache = cache_of(FIRST_CAPACITY)
    cache.truncate(FIRST_CAPACITY - 3)
    cache.reserve(length)
    assert cache.length == FIRST_CAPACITY - 3
    assert length <= cache.keys.shape[2] == cache.values.shape[2] <= 2000
    assert (cache.keys[:, :, : cache.length] == np.arange(cache.length)[:, None]).all()
    assert (cache.values[:, :, : cache.length] == -np.arange(cache.length)[:, None]).all()


def test_growing_by_one_position_at_a_time_moves_the_memory_seldom():
    cache = LeanKVCache(LAYERS, HEADS, HEAD_DIM, 8 * FIRST_CAPACITY)
    capacities = set()
    for length in range(1, 8 * FIRST_CAPACITY + 1):
        cache.reserve(length)
        cache.advance(1)
        capacities.add(cache.keys.shape[2])
    assert capacities == {FIRST_CAPACITY * 2**doublings for doublings in range(4)}


@pytest.mark.parametrize("max_positions", [5, 100, FIRST_CAPACITY, FIRST_CAPACITY + 1, 700])
def test_it_takes_no_more_room_than_the_context_needs(max_positions):
    cache = cache_of(max_positions, max_positions)
    assert cache.keys.shape[2] == max_positions


def test_what_runs_ahead_is_not_counted_and_is_cut():
    cache = cache_of(10)
    cache.pause(3)
    assert (cache.length, cache.num_ahead) == (10, 3)
    cache.truncate(10)
    assert (cache.length, cache.num_ahead) == (10, 0)
    cache.pause(2)
    cache.advance(2)
    assert (cache.length, cache.num_ahead) == (12, 0)


def pause(layer, states) -> Onward:
    return Onward.PAUSE


def test_a_cache_that_grows_keeps_what_ran_ahead():
    model, length = lean_int8("grouped"), FIRST_CAPACITY - 2
    cache, fed = model.new_cache(), some_ids(6, seed=1)
    model.forward(some_ids(length), cache, num_logits=0)
    expected = model.forward(fed, cache).logits
    cache.truncate(length)
    ahead = [model.forward_by_layer([token_id], cache, pause, look_after=(2,)).states for token_id in fed]
    ended = model.forward_by_layer(fed, cache, paused=LayerStates(2, torch.cat(ahead)))
    assert torch.equal(model.read_out(ended.states), expected)


def test_layers_that_ran_ahead_leave_the_others_and_the_past_alone():
    model, ids = lean_int8("grouped"), some_ids(FIRST_CAPACITY + 40)
    cache, length = model.new_cache(), FIRST_CAPACITY - 2
    model.forward(ids[:length], cache, num_logits=0)
    keys, values = cache.keys[:, :, :length].copy(), cache.values[:, :, :length].copy()
    model.forward_by_layer(some_ids(9, seed=1), cache, pause, look_after=(1,))  # over the cache's first capacity
    assert cache.keys[0, :, length:].any()
    assert not cache.keys[1:, :, length:].any()
    cache.truncate(length)
    assert (cache.keys[:, :, :length] == keys).all()
    assert (cache.values[:, :, :length] == values).all()


# --- two runs on one model --------------------------------------------------------------------

KINDS = (*DRAFTING, "none")


def lean_run(kind: str, prompt: str, k: int, **settings) -> Run:
    pair = ModelPair(tiny_lean_target(), byte_vocabulary(), tiny_lean_draft(), frozenset())
    settings = {"max_new_tokens": 24, "exit_layer": 1 + k % 2, "temperature": 0.8, "min_ngram": 1} | settings
    return Run(pair, prompt, RunSettings(drafter=kind, num_draft_tokens=k, **settings), raw=True, live_drafts=True)


def fingerprint(model: LeanModel) -> str:
    """Of every array and tensor that a model keeps, and of its own attributes."""
    digest = hashlib.sha256()
    weights = model.weights
    for holder in (weights, *weights.layers):
        for field in fields(holder):
            value = getattr(holder, field.name)
            if isinstance(value, (np.ndarray, torch.Tensor)):
                digest.update(np.asarray(value).tobytes())
    facts = {name: value for name, value in vars(model).items() if name not in ("_weights", "_next_norms")}
    digest.update(repr(sorted(facts.items())).encode())
    return digest.hexdigest()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_changes_nothing_of_the_shared_model(kind):
    models = tiny_lean_target(), tiny_lean_draft()
    before = [fingerprint(model) for model in models]
    for event in lean_run(kind, "hello world", 3, max_new_tokens=8):
        if event["type"] in ("draft_token", "round"):
            assert [fingerprint(model) for model in models] == before, "not for a moment"


def test_interleaved_runs_do_not_mix():
    alone = [timeless(list(lean_run(*arguments))) for arguments in CROWD]
    streams = [iter(lean_run(*arguments)) for arguments in CROWD]
    together: list[list[dict]] = [[] for _ in CROWD]
    while any(streams):
        for i, stream in enumerate(streams):
            if stream and (event := next(stream, None)):
                together[i].append(event)
            else:
                streams[i] = None
    assert [timeless(events) for events in together] == alone


def test_runs_in_threads_do_not_mix():
    alone = [timeless(list(lean_run(*arguments))) for arguments in CROWD]
    barrier = threading.Barrier(len(CROWD))

    def one(arguments: tuple[str, str, int]) -> list[dict]:
        run = lean_run(*arguments)
        barrier.wait(10)
        return list(run)

    for _ in range(3):
        with ThreadPoolExecutor(len(CROWD)) as pool:
            assert [timeless(events) for events in pool.map(one, CROWD)] == alone


class Interrupted:
    """A matrix product in the middle of which another run makes a whole pass, as a second thread may."""

    def __init__(self, linear, interrupt) -> None:
        self._linear, self._interrupt = linear, interrupt
        self.shape, self.num_bytes = linear.shape, linear.num_bytes

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        product = self._linear(rows)
        self._interrupt()
        return product


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("matrix", ["qkv", "output", "gate_up", "down"])
def test_a_pass_is_not_disturbed_by_another_in_its_middle(matrix, rows):
    model, ids = lean_int8("grouped"), some_ids(rows)
    alone = model.forward(ids, model.new_cache()).logits
    others = model.new_cache()

    def interrupt() -> None:
        model.forward(some_ids(rows, seed=1), others)

    weights = model.weights
    layers = [replace(layer, **{matrix: Interrupted(getattr(layer, matrix), interrupt)}) for layer in weights.layers]
    watched = LeanModel(replace(weights, layers=tuple(layers)), "interrupted", None, torch.int8, 1)
    assert torch.equal(watched.forward(ids, watched.new_cache()).logits, alone)
    assert others.length == rows * model.num_layers
