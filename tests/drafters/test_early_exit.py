"""Early exit: the target's first layers draft in the target's own cache, and leave it as they found it."""

from __future__ import annotations

import pytest

from specviz.config import RunSettings
from specviz.drafters.early_exit import EarlyExit
from specviz.errors import BadRequest
from tests.drafters.run_contexts import ids_of, propose, run_context
from tests.engine.runs import tiny_target
from tests.table_model import DisciplineError, TableModel, random_table

VOCAB = 6


def target(num_layers: int = 4) -> TableModel:
    return TableModel(random_table(VOCAB), exit_table=random_table(VOCAB, seed=1), num_layers=num_layers)


def opened(model: TableModel, prompt: list[int], exit_layer: int | None = 2, **context):
    """A session over a target that has read all of the prompt but its last token."""
    run = run_context(model, num_prompt_tokens=len(prompt), **context)
    if prompt[:-1]:
        model.forward(prompt[:-1], run.target_cache, num_logits=0)
    drafter = EarlyExit.for_run(model, None, RunSettings(drafter="early_exit", exit_layer=exit_layer))
    session = drafter.open(run)
    session.prefill(prompt, {})
    return session, run.target_cache


def test_it_proposes_what_the_first_layers_would_say():
    model = target()
    session, _ = opened(model, [1, 2, 3])
    drafted, why = propose(session, [1, 2, 3], 4)
    assert (ids_of(drafted), why) == (TableModel(model.exit_table).greedy_ids([1, 2, 3], 4), None)


@pytest.mark.parametrize("prompt", [[1], [1, 2, 3]])
def test_it_leaves_the_targets_cache_as_it_found_it(prompt):
    session, cache = opened(target(), prompt)
    propose(session, prompt, 4)
    assert cache.ids == prompt[:-1]


def test_its_layers_run_ahead_while_it_drafts():
    session, cache = opened(target(), [1, 2, 3])
    proposal = session.propose([1, 2, 3], 4, 1)
    next(proposal)
    next(proposal)
    assert [len(layer) for layer in cache.layers] == [4, 4, 2, 2]
    with pytest.raises(DisciplineError):
        _ = cache.ids


def test_a_proposal_that_is_given_up_halfway_is_cut_back_too():
    session, cache = opened(target(), [1, 2, 3])
    proposal = session.propose([1, 2, 3], 4, 1)
    next(proposal)
    proposal.close()
    assert cache.ids == [1, 2]


def test_a_confidence_that_is_too_low_leaves_the_cache_in_order():
    session, cache = opened(target(), [1, 2, 3], confidence=1.0)
    assert propose(session, [1, 2, 3], 4) == ([], "confidence")
    assert cache.ids == [1, 2]


def test_it_has_no_cache_of_its_own_and_says_how_many_layers_it_shares():
    session, _ = opened(target(), [1, 2], exit_layer=3)
    assert session.cache is None
    assert session.shared_layers == 3


@pytest.mark.parametrize(("num_layers", "expected"), [(30, 10), (4, 1), (2, 1), (1, 1)])
def test_without_a_choice_a_third_of_the_layers_drafts(num_layers, expected):
    drafter = EarlyExit.for_run(target(num_layers), None, RunSettings(drafter="early_exit"))
    assert drafter.exit_layer == expected


def test_it_describes_which_of_how_many_layers():
    description = EarlyExit.for_run(target(), None, RunSettings(exit_layer=3)).describe()
    assert (description["kind"], description["exit_layer"], description["num_target_layers"]) == ("early_exit", 3, 4)


@pytest.mark.parametrize("exit_layer", [4, 17])
def test_a_real_target_refuses_layers_that_it_lacks(exit_layer):
    with pytest.raises(BadRequest, match=rf"exit_layer is {exit_layer}.*choose 1 to 3"):
        EarlyExit.for_run(tiny_target(), None, RunSettings(exit_layer=exit_layer))
