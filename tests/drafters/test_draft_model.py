"""A draft model: what it is fed, what it proposes, and what it says its tokens were drawn from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specviz.config import RunSettings
from specviz.drafters.base import draft_model_of
from specviz.drafters.draft_model import DraftModel
from specviz.engine.dice import Dice, draw
from specviz.errors import BadRequest
from tests.drafters.run_contexts import ids_of, propose, run_context
from tests.table_model import TableModel, random_table

VOCAB = 6
TARGET = TableModel(random_table(VOCAB))


def draft(**model) -> TableModel:
    return TableModel(random_table(VOCAB, seed=1), num_layers=1, **model)


def opened(model: TableModel, prompt: list[int], **context):
    session = DraftModel(model).open(run_context(TARGET, num_prompt_tokens=len(prompt), **context))
    session.prefill(prompt, {})
    return session


def fed(model: TableModel) -> list[tuple[int, ...]]:
    """What was fed since the last look."""
    calls = [call.token_ids for call in model.calls]
    model.calls.clear()
    return calls


def test_the_prefill_takes_all_of_the_prompt_but_its_last_token():
    model = draft()
    session = opened(model, [1, 2, 3])
    assert fed(model) == [(1, 2)]
    assert session.cache.ids == [1, 2]


def test_a_one_token_prompt_has_nothing_to_prefill():
    model = draft()
    opened(model, [1])
    assert fed(model) == []


def test_it_proposes_its_own_greedy_continuation_one_pass_a_token():
    model = draft()
    session = opened(model, [1, 2, 3])
    fed(model)
    drafted, why = propose(session, [1, 2, 3], 4)
    expected = model.greedy_ids([1, 2, 3], 4)
    assert (ids_of(drafted), why) == (expected, None)
    assert fed(model) == [(3,), *[(token,) for token in expected[:3]]]


@pytest.mark.parametrize(
    ("num_accepted", "extra", "lacking"),
    [(0, 5, 1), (1, 5, 1), (3, 5, 1), (4, 5, 2)],
    ids=["all rejected", "one accepted", "all but one accepted", "all accepted"],
)
def test_after_a_round_it_feeds_itself_what_it_lacks(num_accepted, extra, lacking):
    model = draft()
    session = opened(model, [1, 2, 3])
    drafted, _ = propose(session, [1, 2, 3], 4)
    committed = [1, 2, 3, *ids_of(drafted)[:num_accepted], extra]
    session.commit(committed, {})
    assert session.cache.length <= len(committed) - 1
    fed(model)
    again, _ = propose(session, committed, 2, round_index=2)
    assert fed(model)[0] == tuple(committed[-lacking:])
    assert ids_of(again) == model.greedy_ids(committed, 2)


def test_after_rounds_without_a_draft_it_catches_up_in_one_pass():
    model = draft()
    session = opened(model, [1, 2])
    committed = [1, 2]
    for token in (3, 4, 5):
        assert propose(session, committed, 0) == ([], None)
        committed = [*committed, token]
        session.commit(committed, {})
    fed(model)
    drafted, _ = propose(session, committed, 1)
    assert fed(model) == [(2, 3, 4, 5)]
    assert ids_of(drafted) == model.greedy_ids(committed, 1)


def test_the_proposal_ends_with_an_end_token():
    model = draft()
    continuation = model.greedy_ids([1, 2, 3], 6)
    end = continuation[1]
    length = continuation.index(end) + 1
    session = opened(model, [1, 2, 3], eos_token_ids=(end,))
    drafted, why = propose(session, [1, 2, 3], 6)
    assert (ids_of(drafted), why) == (continuation[:length], "eos")
    drafted, why = propose(opened(draft(), [1, 2, 3], eos_token_ids=(end,)), [1, 2, 3], length)
    assert (len(drafted), why) == (length, None)


def test_a_full_context_of_its_own_ends_the_proposal():
    model = draft(max_positions=5)
    session = opened(model, [1, 2, 3])
    drafted, why = propose(session, [1, 2, 3], 6)
    assert (len(drafted), why) == (3, "context")
    assert session.cache.length == 5
    committed = [1, 2, 3, *ids_of(drafted), 0]
    session.commit(committed, {})
    assert propose(session, committed, 6) == ([], "context")


def test_a_prompt_longer_than_its_context_is_not_fed_at_all():
    model = draft(max_positions=3)
    session = opened(model, [1, 2, 3, 4])
    assert propose(session, [1, 2, 3, 4], 2) == ([], "context")
    assert model.calls == []


# --- distributions ----------------------------------------------------------------------------

sampling = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.5, 1.0, 2.0]),
        "top_k": st.sampled_from([0, 2, 4]),
        "top_p": st.sampled_from([1.0, 0.7]),
        "repetition_penalty": st.sampled_from([1.0, 1.5]),
    }
)


@given(sampling, st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=4), st.integers(1, 9))
def test_each_token_is_drawn_from_the_distribution_that_it_carries(settings, prompt, round_index):
    model = draft()
    context = run_context(TARGET, num_prompt_tokens=len(prompt), **settings)
    session = DraftModel(model).open(context)
    session.prefill(prompt, {})
    drafted, _ = propose(session, prompt, 3, round_index)
    ids = list(prompt)
    for token in drafted:
        adjusted = context.pipeline.adjust(model.logits_after(ids)[None], ids)
        assert torch.equal(token.probs, context.pipeline.distribution(adjusted)[0])
        assert torch.equal(token.model_probs, adjusted.softmax(-1)[0])
        assert token.token_id == draw(token.probs, Dice(0).uniform(round_index, len(ids), "draft"))
        ids.append(token.token_id)


def test_a_greedy_draft_is_one_hot_and_still_shows_its_distribution():
    drafted, _ = propose(opened(draft(), [1, 2]), [1, 2], 2)
    assert all(token.probs is None for token in drafted)
    assert all(token.model_probs.sum().item() == pytest.approx(1.0) for token in drafted)


def test_nothing_is_computed_for_show_when_nothing_is_shown():
    drafted, _ = propose(opened(draft(), [1, 2], wants_model_probs=False), [1, 2], 2)
    assert all(token.model_probs is None for token in drafted)


@given(st.floats(0.05, 0.95), st.sampled_from([0.0, 1.0]))
def test_a_draft_goes_on_while_it_will_probably_stand_whatever_is_drawn(threshold, temperature):
    session = opened(draft(), [1, 2], confidence=threshold, temperature=temperature)
    drafted, why = propose(session, [1, 2], 5)
    standing = np.cumprod([token.model_probs.max().item() for token in drafted])
    assert (standing[:-1] >= threshold).all()
    if len(drafted) < 5:
        assert why == "confidence" and standing[-1] < threshold


def test_the_drafters_adjustments_are_the_runs():
    model = draft()
    favourite = model.greedy_ids([1, 2], 1)[0]
    drafted, _ = propose(opened(model, [1, 2], suppress_token_ids=(favourite,)), [1, 2], 3)
    assert favourite not in ids_of(drafted)


# --- the drafter ------------------------------------------------------------------------------


def test_it_describes_its_model():
    model = draft(name="little one")
    description = DraftModel(model).describe()
    assert description["kind"] == "draft_model"
    assert description["name"] == "little one"
    assert description["num_layers"] == 1
    assert draft_model_of(DraftModel(model)) is model


def test_without_a_draft_model_it_is_refused_with_the_choices():
    with pytest.raises(BadRequest, match="prompt_lookup, early_exit or none"):
        DraftModel.for_run(TARGET, None, RunSettings(drafter="draft_model"))


def test_two_sessions_share_only_the_model():
    drafter = DraftModel(draft())
    first, second = (drafter.open(run_context(TARGET)) for _ in range(2))
    first.prefill([1, 2, 3], {})
    second.prefill([4, 5], {})
    assert first.cache.ids == [1, 2]
    assert second.cache.ids == [4]
