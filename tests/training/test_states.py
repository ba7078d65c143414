"""States computed again from the ids are those that were kept when the ids were written."""

from __future__ import annotations

import numpy as np
import pytest

from specviz.errors import BadRequest
from specviz.training import writing
from specviz.training.corpus import Shard
from specviz.training.states import StateStore, compute_states
from specviz.training.writing import write
from tests.training.tiny_teachers import FRAME, HEADER, KEPT_LAYERS, SHORT, some_shard, tiny_teacher


@pytest.fixture
def store(tmp_path):
    return StateStore(tmp_path / "states", KEPT_LAYERS)


def test_computed_states_are_those_of_the_writing(monkeypatch):
    monkeypatch.setattr(writing, "MOST_REPEATED_IN_ALL", 1.0)
    model = tiny_teacher().model
    written = list(write(model, FRAME, iter(range(12)), seed=3, rows=5, lengths=SHORT, feature_layers=KEPT_LAYERS))
    shard = Shard.of(0, [(sequence.ids, sequence.answer_start) for sequence in written])
    states = compute_states(model, shard, KEPT_LAYERS, len(HEADER))
    np.testing.assert_array_equal(states.features, np.concatenate([sequence.features for sequence in written]))
    np.testing.assert_allclose(
        states.log_sums, np.concatenate([sequence.log_sums for sequence in written]), rtol=1e-5, atol=1e-5
    )
    assert states.features.dtype == np.float16 and states.log_sums.dtype == np.float32


def test_nothing_is_known_in_the_header_and_after_the_last_token():
    shard = some_shard(0, 5)
    states = compute_states(tiny_teacher().model, shard, KEPT_LAYERS, len(HEADER))
    unknown = np.isnan(states.log_sums)
    for index in range(5):
        own = unknown[shard.starts[index] : shard.starts[index + 1]]
        assert own.nonzero()[0].tolist() == [0, 1, len(own) - 1]
    ends = shard.starts[1:] - 1
    assert not states.features[ends].any()
    assert np.isfinite(states.features).all()


def test_a_header_of_one_token_hides_nothing():
    states = compute_states(tiny_teacher().model, some_shard(0, 1), KEPT_LAYERS, 1)
    assert np.isnan(states.log_sums).nonzero()[0].tolist() == [len(states.log_sums) - 1]


def test_states_are_read_as_they_were_written(store):
    shard = some_shard(4, 3)
    assert not store.has(shard)
    states = compute_states(tiny_teacher().model, shard, KEPT_LAYERS, len(HEADER))
    store.write(4, states)
    assert store.has(shard)
    np.testing.assert_array_equal(store.read(4).features, states.features)
    np.testing.assert_array_equal(store.read(4).log_sums, states.log_sums)


def test_states_of_other_layers_are_others(store, tmp_path):
    shard = some_shard(0, 3)
    store.write(0, compute_states(tiny_teacher().model, shard, KEPT_LAYERS, len(HEADER)))
    for layers in ((1,), (1, 3), (0, 1, 2, 3)):
        assert not StateStore(tmp_path / "states", layers).has(shard)


@pytest.mark.parametrize("layers", [(3,), (2, 3)])
def test_the_last_of_the_layers_that_are_kept_need_no_file_of_their_own(store, tmp_path, layers):
    shard = some_shard(0, 3)
    fewer = StateStore(tmp_path / "states", layers)
    store.write(0, compute_states(tiny_teacher().model, shard, KEPT_LAYERS, len(HEADER)))
    assert fewer.has(shard)
    alone = compute_states(tiny_teacher().model, shard, layers, len(HEADER))
    np.testing.assert_array_equal(fewer.read(0).features, alone.features)
    np.testing.assert_array_equal(fewer.read(0).log_sums, alone.log_sums)
    store.paths(0)[0].write_bytes(b"damaged")
    assert not fewer.has(shard)
    fewer.write(0, alone)
    assert fewer.has(shard)
    np.testing.assert_array_equal(fewer.read(0).features, alone.features)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"nothing of the kind", None])
def test_damaged_or_missing_states_are_computed_again(store, which, content):
    shard = some_shard(0, 3)
    store.write(0, compute_states(tiny_teacher().model, shard, KEPT_LAYERS, len(HEADER)))
    path = store.paths(0)[which]
    path.unlink() if content is None else path.write_bytes(content)
    assert not store.has(shard)


def test_states_of_more_or_fewer_tokens_are_computed_again(store):
    shard, longer = some_shard(0, 3), some_shard(0, 5)
    states = [compute_states(tiny_teacher().model, one, KEPT_LAYERS, len(HEADER)) for one in (shard, longer)]
    store.write(0, states[1])
    assert store.has(longer) and not store.has(shard)
    features, _ = store.paths(0)
    np.save(features, states[0].features)
    assert not store.has(longer)


def test_the_states_of_another_text_are_refused(store):
    store.claim({"seed": 1})
    store.claim({"seed": 1})
    with pytest.raises(BadRequest, match=r"holds the states of another text .* name another folder with --work"):
        store.claim({"seed": 2})
