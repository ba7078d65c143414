"""Early exit: the target's first layers draft in the target's own cache, and what they computed is used again."""

from __future__ import annotations

import pytest
import torch

from specviz.config import RunSettings
from specviz.drafters.early_exit import EarlyExit
from specviz.early_exit.exit_heads import PlainHeads
from specviz.errors import BadRequest
from tests.drafters.run_contexts import ids_of, propose, run_context
from tests.engine.runs import tiny_target
from tests.table_model import TableModel, random_table

VOCAB = 6


def target(num_layers: int = 4) -> TableModel:
    return TableModel(random_table(VOCAB), exit_table=random_table(VOCAB, seed=1), num_layers=num_layers)


def opened(
    model: TableModel, prompt: list[int], exit_layer: int | None = 2, heads: PlainHeads | None = None, **context
):
    """A session over a target that has read all of the prompt but its last token."""
    run = run_context(model, num_prompt_tokens=len(prompt), **context)
    if prompt[:-1]:
        model.forward(prompt[:-1], run.target_cache, num_logits=0)
    drafter = EarlyExit.for_run(model, heads, RunSettings(drafter="early_exit", exit_layer=exit_layer))
    session = drafter.open(run)
    session.prefill(prompt, {})
    return session, run.target_cache


def test_it_proposes_what_the_first_layers_would_say():
    model = target()
    session, _ = opened(model, [1, 2, 3])
    drafted, why = propose(session, [1, 2, 3], 4)
    assert (ids_of(drafted), why) == (TableModel(model.exit_table).greedy_ids([1, 2, 3], 4), None)


@pytest.mark.parametrize("prompt", [[1], [1, 2, 3]])
def test_the_layers_behind_it_have_not_seen_what_it_drafted(prompt):
    session, cache = opened(target(), prompt)
    drafted, _ = propose(session, prompt, 4)
    fed = [*prompt, *ids_of(drafted)[:-1]]  # the last draft token is not fed
    assert cache.layers == [fed, fed, prompt[:-1], prompt[:-1]]
    assert cache.length == len(prompt) - 1
    cache.truncate(cache.length)
    assert cache.ids == prompt[:-1]


def test_verification_goes_on_where_drafting_stopped():
    model = target()
    session, cache = opened(model, [1, 2, 3])
    draft = ids_of(propose(session, [1, 2, 3], 3)[0])
    model.passes.clear()
    logits = session.verify([3, *draft]).logits
    assert [(call.token_ids, call.first_layer) for call in model.passes] == [((draft[-1],), 0), ((3, *draft), 2)]
    whole = model.new_cache()
    model.forward([1, 2], whole, num_logits=0)
    assert torch.equal(logits, model.forward([3, *draft], whole).logits)
    assert cache.ids == [1, 2, 3, *draft]


@pytest.mark.parametrize("num_drawn", [0, 1, 2])
def test_a_proposal_that_is_given_up_halfway_can_be_verified_and_cut(num_drawn):
    model = target()
    session, cache = opened(model, [1, 2, 3])
    proposal = session.propose([1, 2, 3], 4, 1)
    draft = [next(proposal).token_id for _ in range(num_drawn)]
    proposal.close()
    assert session.verify([3, *draft]).logits.shape == (num_drawn + 1, VOCAB)
    cache.truncate(2)
    assert cache.ids == [1, 2]


def test_a_draft_of_nothing_still_spares_the_first_layers():
    model = target()
    heads = PlainHeads(model, torch.tensor([4]))  # and just this token must not come
    session, cache = opened(model, [1, 2, 3], heads=heads, suppress_token_ids=(4,))
    assert propose(session, [1, 2, 3], 4) == ([], "confidence")
    model.passes.clear()
    session.verify([3])
    assert [(call.token_ids, call.first_layer) for call in model.passes] == [((3,), 2)]
    assert cache.ids == [1, 2, 3]


def test_it_has_no_cache_of_its_own_and_says_how_many_layers_it_shares():
    session, _ = opened(target(), [1, 2], exit_layer=3)
    assert session.cache is None
    assert session.shared_layers == 3


@pytest.mark.parametrize(("num_layers", "expected"), [(30, 10), (4, 1), (2, 1)])
def test_without_a_choice_a_third_of_the_layers_drafts(num_layers, expected):
    drafter = EarlyExit.for_run(target(num_layers), None, RunSettings(drafter="early_exit"))
    assert drafter.exit_layer == expected


def test_it_describes_which_of_how_many_layers():
    description = EarlyExit.for_run(target(), None, RunSettings(exit_layer=3)).describe()
    assert (description["kind"], description["exit_layer"], description["num_target_layers"]) == ("early_exit", 3, 4)
    assert description["exit_heads"] == "plain"


@pytest.mark.parametrize("exit_layer", [3, 4, 17])
def test_a_real_target_refuses_layers_that_are_not_below_its_last(exit_layer):
    with pytest.raises(BadRequest, match=rf"exit_layer is {exit_layer}.*choose 1 to 2"):
        EarlyExit.for_run(tiny_target(), None, RunSettings(exit_layer=exit_layer))


def test_a_target_of_one_layer_is_refused():
    with pytest.raises(BadRequest, match="has one layer only"):
        EarlyExit.for_run(target(1), None, RunSettings())


def test_a_layer_that_the_heads_cannot_read_is_refused_with_those_they_can():
    model = target(6)
    heads = PlainHeads(model)
    heads.layers = (2, 5)
    assert EarlyExit.for_run(model, heads, RunSettings()).exit_layer == 2
    with pytest.raises(BadRequest, match="exit_layer is 3, and there is no exit head for it: choose from 2, 5"):
        EarlyExit.for_run(model, heads, RunSettings(exit_layer=3))


def test_with_a_cut_vocabulary_it_drafts_from_the_cut_only():
    model = target()
    heads = PlainHeads(model, torch.tensor([1, 4]))
    run = run_context(model, num_prompt_tokens=1)
    session = EarlyExit.for_run(model, heads, RunSettings(exit_layer=2)).open(run)
    drafted, _ = propose(session, [1], 4)
    assert set(ids_of(drafted)) <= {1, 4}
    assert all(float(token.model_probs[[0, 2, 3, 5]].sum()) == 0 for token in drafted)
