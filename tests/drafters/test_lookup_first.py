"""Lookup first: which of the two drafts a round, how much, and what the other is told meanwhile."""

from __future__ import annotations

import pytest

from specviz.config import RunSettings
from specviz.drafters import make_drafter
from specviz.drafters.draft_model import DraftModel
from specviz.drafters.lookup_first import MOST_WITH_AUTO, LookupFirst
from specviz.errors import BadRequest
from tests.drafters.run_contexts import ids_of, propose, run_context
from tests.table_model import TableModel, random_table

TARGET, DRAFT = TableModel(random_table(10)), TableModel(random_table(10, seed=1))
REPEATS = [7, 8, 6, 1, 2, 3, 7, 8]
SETTINGS = RunSettings(drafter="draft_model", lookup_first=True, max_ngram=2, min_ngram=2)


def opened(ids: list[int], **context):
    session = make_drafter(TARGET, DRAFT, SETTINGS).open(run_context(TARGET, **context))
    session.prefill(ids, {})
    return session


def drafted_alone(ids: list[int], k: int):
    session = DraftModel.for_run(TARGET, DRAFT, SETTINGS).open(run_context(TARGET))
    session.prefill(ids, {})
    return propose(session, ids, k)


def test_what_stands_in_the_text_is_looked_up_and_marked():
    drafted, why = propose(opened(REPEATS), REPEATS, 3)
    assert (ids_of(drafted), why) == ([6, 1, 2], None)
    assert all(token.looked_up and token.probs is None and token.model_probs is None for token in drafted)


def test_where_nothing_is_found_the_draft_is_asked():
    ids = [1, 2, 3, 4]
    drafted, why = propose(opened(ids), ids, 3)
    assert (ids_of(drafted), why) == (ids_of(drafted_alone(ids, 3)[0]), None)
    assert not any(token.looked_up for token in drafted)


def test_a_short_match_is_the_whole_draft():
    ids = [1, 2, 3, 1, 2]
    drafted, why = propose(opened(ids), ids, 5)
    assert (ids_of(drafted), why) == ([3, 1, 2], "no_match")


def test_with_k_auto_a_lookup_ends_after_a_few_tokens():
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]
    drafted, why = propose(opened(ids, confidence=0.5), ids, 8)
    assert (ids_of(drafted), why) == ([3, 4, 5, 6][:MOST_WITH_AUTO], None)


def test_the_draft_goes_on_from_everything_that_was_committed_meanwhile():
    session = opened(REPEATS)
    propose(session, REPEATS, 3)
    committed = [*REPEATS, 6, 1, 9, 4]
    session.commit(committed, {})
    drafted, _ = propose(session, committed, 3, round_index=2)
    assert ids_of(drafted) == ids_of(drafted_alone(committed, 3)[0])


def test_the_trace_says_that_it_looks_up_and_how():
    described = make_drafter(TARGET, DRAFT, SETTINGS).describe()
    assert described["kind"] == "draft_model"
    assert described["lookup_first"] == {"max_ngram": 2, "min_ngram": 2}


def test_before_prompt_lookup_there_is_nothing_to_look_up():
    drafter = make_drafter(TARGET, None, RunSettings(drafter="prompt_lookup", lookup_first=True))
    assert not isinstance(drafter, LookupFirst)


def test_plain_decoding_has_no_lookup():
    assert make_drafter(TARGET, None, RunSettings(drafter="none", lookup_first=True)) is None


def test_early_exit_has_no_draft_of_its_own_to_look_up_before():
    with pytest.raises(BadRequest, match="lookup_first is on, and drafter is 'early_exit': turn it off"):
        make_drafter(TARGET, None, RunSettings(drafter="early_exit", lookup_first=True, exit_layer=1))


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_it_is_on_or_off(value):
    with pytest.raises(BadRequest, match=r"lookup_first is .*: give true or false"):
        RunSettings(lookup_first=value)
