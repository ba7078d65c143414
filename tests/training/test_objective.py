"""What a draft is scored by, against the formulas written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specviz.training.objective import CutHead, score
from specviz.training.trainer import scores_of
from tests.training.tiny_teachers import cut_head, new_head_student, some_examples, some_shard, tiny_teacher

POSITIONS, VOCAB, CUT = 40, 30, 12


@pytest.fixture
def case():
    """(logits over the cut, the target's probabilities over the whole vocabulary, the cut's ids, weights)"""
    generator = torch.Generator().manual_seed(0)
    ids = torch.arange(0, VOCAB, 2)[:CUT]
    logits = torch.randn(POSITIONS, CUT, generator=generator)
    whole = (2 * torch.randn(POSITIONS, VOCAB, generator=generator)).softmax(-1)
    return logits, whole, ids, torch.rand(POSITIONS, generator=generator)


def test_the_loss_is_the_divergence_up_to_what_the_draft_cannot_change(case):
    logits, whole, ids, weights = case
    inside = whole[:, ids]
    other = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))

    def divergence(logits):
        return (weights[:, None] * inside * (inside.log() - logits.log_softmax(-1))).sum()

    losses = [score(one, inside, weights).loss for one in (logits, other)]
    assert losses[0] - losses[1] == pytest.approx(float(divergence(logits) - divergence(other)), abs=1e-4)
    constant = (weights[:, None] * inside * inside.log()).sum()
    assert losses[0] == pytest.approx(float(divergence(logits) - constant), abs=1e-4)


def test_the_loss_is_least_where_the_draft_has_the_targets_ratios(case):
    _, whole, ids, weights = case
    logits = whole[:, ids].log().requires_grad_()
    score(logits, whole[:, ids], weights).loss.backward()
    assert logits.grad.abs().max() < 1e-6


def test_what_lies_outside_the_cut_counts_for_nothing(case):
    logits, whole, ids, weights = case
    inside = whole[:, ids].clone()
    inside[0] = 0
    logits = logits.clone().requires_grad_()
    score(logits, inside, weights).loss.backward()
    assert not logits.grad[0].any() and logits.grad[1].any()


def test_agreement_and_overlap(case):
    logits, whole, ids, weights = case
    inside = whole[:, ids]
    scores = score(logits, inside, weights, measure=True)
    drafts = logits.softmax(-1)
    best, agreed = whole.argmax(-1), 0.0
    for position in range(POSITIONS):
        said = ids[drafts[position].argmax()]
        is_certain = inside[position].max() >= 1 - inside[position].sum()
        agreed += float(weights[position]) * bool(said == best[position] and is_certain)
    assert float(scores.agreement) == pytest.approx(agreed, abs=1e-5)
    wide = torch.zeros(POSITIONS, VOCAB).index_copy_(1, ids, drafts)
    assert float(scores.overlap) == pytest.approx(float((torch.minimum(wide, whole).sum(-1) * weights).sum()), abs=1e-5)
    assert scores.weight == weights.sum()
    assert scores.mean_loss == pytest.approx(float(scores.loss / weights.sum()))


def test_a_best_token_outside_the_cut_is_no_agreement():
    logits = torch.tensor([[5.0, 0, 0]]).repeat(3, 1)
    inside = torch.tensor([[0.3, 0.1, 0.1], [0.6, 0.1, 0.1], [0.2, 0.0, 0.0]])  # 0.5, 0.2 and 0.8 lie outside
    scores = [score(logits[[i]], inside[[i]], torch.ones(1), measure=True) for i in range(3)]
    assert [float(one.agreement) for one in scores] == [0, 1, 0]


def test_where_the_whole_vocabulary_is_known_agreement_is_exact(case):
    logits, whole, ids, weights = case
    scores = score(logits, whole[:, ids], weights, measure=True, target_best=whole.amax(-1))
    same = ids[logits.argmax(-1)] == whole.argmax(-1)
    assert float(scores.agreement) == pytest.approx(float((same * weights).sum()), abs=1e-5)
    assert scores.agreement > score(logits, whole[:, ids], weights, measure=True).agreement


def test_the_targets_best_token_is_looked_for_in_the_whole_vocabulary():
    states, rows = torch.randn(600, 8), torch.randn(VOCAB, 8)
    cut = torch.tensor([1, 4, 20])
    logits = states @ rows.T
    best = CutHead(cut, rows[cut], rows).best_probs(states, logits.logsumexp(-1))
    torch.testing.assert_close(best, logits.softmax(-1).amax(-1))
    assert CutHead(cut, rows[cut]).best_probs(states, logits.logsumexp(-1)) is None


def test_nothing_is_measured_where_nobody_asked(case):
    logits, whole, ids, weights = case
    scores = score(logits, whole[:, ids], weights)
    assert scores.agreement == scores.overlap == 0


def test_nothing_to_score_is_no_loss():
    scores = score(torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0))
    assert scores.mean_loss == 0


def test_the_targets_probabilities_come_from_its_last_state():
    states, rows = torch.randn(5, 8), torch.randn(VOCAB, 8)
    ids = torch.tensor([1, 4, 20])
    whole = (states @ rows.T).softmax(-1)
    head = CutHead(ids, rows[ids]).with_context(torch.zeros(1, 5, dtype=torch.int64), 0)
    chosen = torch.ones(1, 5, dtype=torch.bool)
    torch.testing.assert_close(head.target_probs(states, (states @ rows.T).logsumexp(-1), chosen), whole[:, ids])


def test_a_tied_head_says_the_tokens_that_stand_in_the_text_so_far():
    states, rows = torch.randn(2, 4, 8), torch.randn(VOCAB, 8)
    ids = torch.tensor([[1, 7, 4, 9], [9, 4, 7, 7]])  # 7 and 9 are not in the cut
    cut = torch.tensor([1, 4, 20])
    head = CutHead(cut, rows[cut], rows).with_context(ids, 0)
    chosen = torch.ones(2, 4, dtype=torch.bool)
    whole = (states @ rows.T).softmax(-1).flatten(0, 1)
    probs = head.target_probs(states.flatten(0, 1), (states @ rows.T).logsumexp(-1).flatten(), chosen)
    torch.testing.assert_close(probs[:, :3], whole[:, cut])
    stands = torch.tensor([[[0, 0], [1, 0], [1, 0], [1, 1]], [[0, 1], [0, 1], [1, 1], [1, 1]]]).flatten(0, 1)
    torch.testing.assert_close(probs[:, 3:], whole[:, [7, 9]] * stands)
    found = score(head.logits(states.flatten(0, 1), chosen), probs, torch.ones(8), measure=True)
    assert found.loss.isfinite() and found.overlap <= 8


def test_an_output_knows_the_tokens_up_to_its_first_position():
    rows = torch.randn(VOCAB, 8)
    cut = torch.tensor([1, 4, 20])
    head = CutHead(cut, rows[cut], rows).with_context(torch.tensor([[1, 7, 4, 9]]), 1)
    assert head.sayable.int().tolist() == [[[1, 0], [1, 0], [1, 1]]]
    assert CutHead(cut, rows[cut]).with_context(torch.tensor([[1, 7, 4, 9]]), 1).sayable.shape == (1, 3, 0)


def test_the_probabilities_of_an_int8_target_are_about_its_own(tmp_path):
    training, _ = some_examples(tmp_path, [some_shard(0, 6)])
    batch = training.batch([0, 1])
    head = cut_head(num_ids=len(tiny_teacher().embedding))
    known = batch.weights > 0
    probs = head.with_context(batch.ids, 0).target_probs(batch.last_states[known], batch.log_sums[known], known)
    assert probs.sum(-1).sub(1).abs().max() < 0.15


@torch.no_grad()
def test_each_step_is_scored_where_it_means_something(tmp_path):
    training, _ = some_examples(tmp_path, [some_shard(0, 6)])
    batch, student, head = training.batch([0, 1, 2]), new_head_student(), cut_head()
    batch = replace(batch, weights=torch.rand(batch.weights.shape, generator=torch.Generator().manual_seed(0)))
    scores = scores_of(student, head, batch, 3, measure=True)
    inputs = list(student.head_inputs(batch, 3))
    for step, found in enumerate(scores):
        weights = batch.weights[:, 1:].clone()
        weights[:, :step] = 0
        every = torch.ones_like(weights, dtype=torch.bool)
        sayable = head.with_context(batch.ids, 1)
        logits = sayable.logits(inputs[step].flatten(0, 1), every)
        probs = sayable.target_probs(batch.last_states[:, 1:].flatten(0, 1), batch.log_sums[:, 1:].flatten(), every)
        wanted = score(logits, probs, weights.flatten(), measure=True)
        for name in ("loss", "agreement", "overlap", "weight"):
            torch.testing.assert_close(getattr(found, name), getattr(wanted, name), rtol=1e-4, atol=1e-4)
    assert scores[0].weight > scores[1].weight > scores[2].weight


@torch.no_grad()
def test_a_share_of_the_later_positions_is_a_draw_that_can_be_repeated(tmp_path):
    training, _ = some_examples(tmp_path, [some_shard(0, 6)])
    batch, student, head = training.batch([0, 1, 2]), new_head_student(), cut_head()

    def weights(seed):
        generator = torch.Generator().manual_seed(seed)
        return [float(one.weight) for one in scores_of(student, head, batch, 2, 0.5, generator)]

    whole = [float(one.weight) for one in scores_of(student, head, batch, 2)]
    assert weights(1) == weights(1) != weights(2)
    assert weights(1)[0] == whole[0] and 0.3 < weights(1)[1] / whole[1] < 0.7
