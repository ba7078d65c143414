"""Batches of sequences, and the order in which an epoch takes them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from specviz.training import corpus as corpora
from tests.tiny_models import VOCAB_SIZE
from tests.training.tiny_teachers import new_head_student, some_examples, some_shard, tiny_teacher


@pytest.fixture
def shards():
    return [some_shard(0, 30), some_shard(2, 25)]


@pytest.fixture
def parts(tmp_path, monkeypatch, shards):
    monkeypatch.setattr(corpora, "HELD_OUT_EVERY", 4)
    return some_examples(tmp_path, shards)


def test_every_sequence_is_either_for_training_or_held_out(parts, shards):
    training, held_out = parts
    assert sorted([*training.places, *held_out.places]) == [(s.number, i) for s in shards for i in range(len(s))]
    assert len(held_out) > 3
    assert training.num_tokens + held_out.num_tokens == sum(len(shard.ids) for shard in shards)
    assert training.fingerprint != held_out.fingerprint


@pytest.mark.parametrize("tokens_per_batch", [1, 60, 200, 10_000])
def test_an_epoch_takes_every_sequence_once(parts, tokens_per_batch):
    training, _ = parts
    order = training.order(0, 1, tokens_per_batch)
    assert Counter(index for batch in order for index in batch) == Counter(range(len(training)))
    for batch in order:
        assert len(batch) == 1 or len(batch) * training.lengths[batch].max() <= tokens_per_batch


def test_the_order_is_a_function_of_epoch_and_seed(parts):
    training, _ = parts
    assert training.order(1, 5, 100) == training.order(1, 5, 100)
    assert training.order(1, 5, 100) != training.order(2, 5, 100)
    assert training.order(1, 5, 100) != training.order(1, 6, 100)


def test_nothing_has_an_empty_order(tmp_path):
    _, held_out = some_examples(tmp_path, [some_shard(0, 1)])
    assert len(held_out) == 0 and held_out.order(0, 0, 100) == []


def test_a_batch_is_its_sequences_padded_at_the_end(parts, shards):
    training, _ = parts
    indices = [0, 5, 9]
    batch = training.batch(indices)
    longest = int(training.lengths[indices].max())
    assert batch.ids.shape == (3, longest) and batch.features.shape == (3, longest, 3, 48)
    assert torch.equal(batch.last_states, batch.features[:, :, 2])
    for row, index in enumerate(indices):
        number, place = training.places[index]
        shard = next(shard for shard in shards if shard.number == number)
        ids = shard.sequence(place)
        assert batch.ids[row, : len(ids)].tolist() == ids.tolist()
        weights = batch.weights[row]
        start = int(shard.answer_starts[place])
        expected = np.zeros(longest)
        expected[start - 1 :] = 1
        expected[:2] = expected[len(ids) - 1 :] = 0
        np.testing.assert_allclose(weights, expected)
        assert not batch.features[row, len(ids) :].any() and batch.log_sums[row].isfinite().all()
        model = tiny_teacher().model
        logits = model.forward(ids.tolist(), model.new_cache()).logits
        torch.testing.assert_close(batch.log_sums[row, 2 : len(ids) - 1], logits.logsumexp(-1)[2:-1])


def test_tokens_of_answers_are_counted(parts, shards):
    training, _ = parts
    expected = Counter()
    for number, place in training.places:
        shard = next(shard for shard in shards if shard.number == number)
        expected.update(shard.sequence(place)[shard.answer_starts[place] :].tolist())
    counts = training.token_counts(VOCAB_SIZE)
    assert {token: count for token, count in enumerate(counts.tolist()) if count} == dict(expected)


@pytest.mark.parametrize("feature_layers", [(1, 2), (0, 1), (1, 3), (0, 2, 3)])
@torch.no_grad()
def test_a_head_reads_the_layers_that_it_was_made_for(tmp_path, feature_layers):
    kept = tuple(layer for layer in feature_layers if layer != 3)
    training, _ = some_examples(tmp_path, [some_shard(0, 3)], (*kept, 3))
    batch = training.batch([0])
    model, ids = tiny_teacher().model, batch.ids[0].tolist()
    features = model.forward(ids[:-1], model.new_cache(), feature_layers=feature_layers).features
    student = new_head_student(feature_layers=feature_layers)
    given = []
    student.module.fused = lambda features: (
        given.append(features) or type(student.module).fused(student.module, features)
    )
    list(student.head_inputs(batch, 1))
    expected = torch.stack([features[layer] for layer in feature_layers], 1)
    torch.testing.assert_close(given[0][0], expected, rtol=1e-3, atol=1e-3)


def test_coverage_counts_answers_by_the_cut_and_by_what_stands_earlier(tmp_path):
    shard = corpora.Shard.of(0, [(np.array([5, 6, 7, 5, 9, 9]), 2), (np.array([7, 1, 8]), 1)])
    examples, held_out = some_examples(tmp_path, [shard])
    parts = [part for part in (examples, held_out) if len(part)]
    covered = {
        says: sum(round(part.coverage(np.array([7]), 20, says_context=says) * _answers(part)) for part in parts)
        for says in (False, True)
    }
    assert covered == {False: 1, True: 3}  # 7; and the second 5 and the second 9


def _answers(examples) -> int:
    return int(examples.token_counts(20).sum())
