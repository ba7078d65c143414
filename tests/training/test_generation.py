"""Filling a corpus: the seed decides what is in it, not the workers, and not where it was broken off."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

from specviz.errors import RunFailed
from specviz.training import generation, writing
from specviz.training.corpus import Corpus
from specviz.training.generation import generate
from specviz.training.states import StateStore
from tests.training.tiny_teachers import FRAME, KEPT_LAYERS, SHORT, tiny_teacher

WANTED = 900  # tokens


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(generation, "SEQUENCES_PER_SHARD", 8)
    monkeypatch.setattr(writing, "MOST_REPEATED_IN_ALL", 0.9)


class Place:
    """A corpus with its states, and how to fill it."""

    def __init__(self, folder):
        self.corpus, self.store = Corpus(folder / "text"), StateStore(folder / "states", KEPT_LAYERS)
        self.reported = []

    def fill(self, num_tokens=WANTED, *, workers=1, seed=1, rows=3, report=None, lengths=SHORT):
        generate(
            tiny_teacher().model,
            FRAME,
            self.corpus,
            self.store,
            num_tokens=num_tokens,
            seed=seed,
            workers=workers,
            rows=rows,
            lengths=lengths,
            report=report or (lambda done, total: self.reported.append((done, total))),
        )
        return self

    def contents(self):
        """{number: (ids, lengths, features, log sums)}"""
        return {
            shard.number: (
                shard.ids.tolist(),
                shard.starts.tolist(),
                np.array(self.store.read(shard.number).features).tobytes(),
                np.array(self.store.read(shard.number).log_sums).tobytes(),
            )
            for shard in self.corpus.shards()
        }


@pytest.fixture(scope="module")
def in_one_go(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "SEQUENCES_PER_SHARD", 8)
        patch.setattr(writing, "MOST_REPEATED_IN_ALL", 0.9)
        return Place(tmp_path_factory.mktemp("go")).fill()


def test_there_is_as_much_as_was_wanted_and_no_shard_more(in_one_go):
    shards = list(in_one_go.corpus.shards())
    assert [shard.number for shard in shards] == list(range(len(shards))) and len(shards) > 2
    sizes = [len(shard.ids) for shard in shards]
    assert sum(sizes[:-1]) < WANTED <= sum(sizes)
    assert all(in_one_go.store.has(shard) for shard in shards)


def test_what_is_reported_grows_up_to_what_was_wanted(in_one_go):
    done = [done for done, _ in in_one_go.reported]
    assert done == sorted(done) and done[0] == 0 and done[-1] == WANTED
    assert {total for _, total in in_one_go.reported} == {WANTED}


@pytest.mark.parametrize(("workers", "rows"), [(1, 8), (2, 3), (2, 1), (3, 20)])
def test_workers_and_rows_change_nothing(tmp_path, in_one_go, workers, rows):
    assert Place(tmp_path).fill(workers=workers, rows=rows).contents() == in_one_go.contents()


def test_another_seed_writes_another_text(tmp_path, in_one_go):
    other = Place(tmp_path).fill(seed=2, num_tokens=100)
    assert other.contents()[0][0] != in_one_go.contents()[0][0]


class Broken(Exception):
    """What goes wrong in the middle."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, Broken])
@pytest.mark.parametrize("workers", [1, 2])
def test_broken_off_and_gone_on_with_it_is_the_same_as_in_one_go(tmp_path, in_one_go, workers, error):
    place = Place(tmp_path)

    def report(done, total):
        if place.corpus.numbers():
            raise error

    with pytest.raises(error):
        place.fill(workers=workers, report=report)
    assert 0 < len(place.corpus.numbers()) < len(in_one_go.corpus.numbers())
    place.fill(workers=workers)
    assert place.contents() == in_one_go.contents()


def test_a_shard_that_was_deleted_is_written_again(tmp_path, in_one_go):
    place = Place(tmp_path).fill()
    place.corpus.path(1).unlink()
    place.fill()
    assert place.contents() == in_one_go.contents()


def test_more_can_be_asked_for_later(tmp_path, in_one_go):
    place = Place(tmp_path).fill(200).fill()
    assert place.contents() == in_one_go.contents()


def test_a_full_corpus_is_left_as_it_is(tmp_path):
    place = Place(tmp_path).fill(300)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.np?")}
    threads = threading.active_count()
    place.fill(300)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.np?")} == before
    assert threading.active_count() == threads and place.reported[-1] == (300, 300)


@pytest.mark.parametrize("error", [KeyboardInterrupt, Broken])
def test_an_error_here_stops_the_workers_at_once(tmp_path, error):
    def report(done, total):
        if done:
            raise error

    before, threads = threading.active_count(), torch.get_num_threads()
    place, begun = Place(tmp_path), time.monotonic()
    with pytest.raises(error):
        place.fill(10**9, workers=2, report=report)
    assert time.monotonic() - begun < 10
    assert threading.active_count() == before and torch.get_num_threads() == threads


def test_an_error_in_a_worker_is_raised_here(tmp_path, monkeypatch):
    def write(*args, **kwargs):
        raise Broken
        yield

    monkeypatch.setattr(generation, "write", write)
    before = threading.active_count()
    with pytest.raises(Broken):
        Place(tmp_path).fill(workers=2)
    assert threading.active_count() == before


def test_a_target_that_only_repeats_itself_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "MOST_REPEATED_IN_ALL", -1.0)
    with pytest.raises(RunFailed, match="8 texts in a row that only repeat themselves"):
        Place(tmp_path).fill()
