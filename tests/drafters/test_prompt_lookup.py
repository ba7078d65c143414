"""Prompt lookup: which continuation is proposed, and when none is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specviz.config import RunSettings
from specviz.drafters.prompt_lookup import PromptLookup
from tests.drafters.run_contexts import ids_of, propose, run_context
from tests.table_model import TableModel, random_table

TARGET = TableModel(random_table(10))
END = 9


def lookup(ids: list[int], k: int = 3, *, max_ngram: int = 3, min_ngram: int = 1, prompt_length: int | None = None):
    """What is proposed after `ids`, of which the first `prompt_length` are the prompt."""
    session = PromptLookup(max_ngram, min_ngram).open(run_context(TARGET, eos_token_ids=(END,)))
    session.prefill(ids[: prompt_length or len(ids)], {})
    return propose(session, ids, k)


@pytest.mark.parametrize(
    ("ids", "k", "expected", "why"),
    [
        ([7, 8, 6, 1, 7, 8], 2, [6, 1], None),
        ([7, 8, 6, 1, 7, 8], 3, [6, 1, 7], None),
        ([1, 2, 3], 3, [], "no_match"),
        ([1], 3, [], "no_match"),
        ([5, 5], 3, [5], "no_match"),
        ([5, 5, 5, 5], 2, [5, 5], None),
        ([1, 2, 1, 2, 1], 4, [2, 1], "no_match"),
        ([1, 2, 3, 1], 0, [], None),
    ],
)
def test_what_followed_the_suffix_is_proposed(ids, k, expected, why):
    drafted, stop = lookup(ids, k, max_ngram=2)
    assert (ids_of(drafted), stop) == (expected, why)


def test_the_longest_suffix_wins_over_a_later_shorter_one():
    #      "1 2" -> 3 stands early; "2" alone -> 7 stands later.
    drafted, _ = lookup([1, 2, 3, 2, 7, 1, 2], 1)
    assert ids_of(drafted) == [3]


def test_of_equal_suffixes_the_latest_with_enough_behind_it_wins():
    ids = [1, 2, 3, 4, 5, 1, 2, 6, 7, 8, 1, 2]
    assert ids_of(lookup(ids, 2)[0]) == [6, 7]
    assert ids_of(lookup(ids, 5)[0]) == [6, 7, 8, 1, 2]
    assert ids_of(lookup(ids, 7)[0]) == [3, 4, 5, 1, 2, 6, 7]


def test_a_suffix_shorter_than_the_minimum_is_not_looked_for():
    assert lookup([1, 2, 3, 1], min_ngram=2)[0] == []
    assert ids_of(lookup([1, 2, 3, 1], min_ngram=1)[0]) == [2, 3, 1]


def test_a_suffix_longer_than_the_maximum_is_not_needed():
    assert ids_of(lookup([1, 2, 3, 8, 0, 2, 3], 1, max_ngram=2)[0]) == [8]


@pytest.mark.parametrize("prompt_length", [1, 3, 4, 6])
def test_prompt_and_generated_text_are_searched_alike(prompt_length):
    ids = [7, 8, 6, 1, 7, 8]
    assert ids_of(lookup(ids, 2, prompt_length=prompt_length)[0]) == [6, 1]


def test_the_proposal_ends_with_an_end_token():
    drafted, stop = lookup([1, 2, END, 4, 1, 2], 3)
    assert (ids_of(drafted), stop) == ([END], "eos")


def test_an_end_token_in_the_last_place_is_no_reason_for_a_short_draft():
    drafted, stop = lookup([1, 2, END, 4, 1, 2], 1)
    assert (ids_of(drafted), stop) == ([END], None)


def test_proposals_are_one_hot():
    drafted, _ = lookup([7, 8, 6, 1, 7, 8])
    assert all(token.probs is None and token.model_probs is None for token in drafted)


def test_the_session_has_no_cache_and_shares_no_layers():
    session = PromptLookup().open(run_context(TARGET))
    assert session.cache is None
    assert session.shared_layers == 0


def test_the_settings_reach_the_lookup():
    drafter = PromptLookup.for_run(TARGET, None, RunSettings(max_ngram=7, min_ngram=3))
    assert drafter.describe() == {"kind": "prompt_lookup", "name": drafter.name, "max_ngram": 7, "min_ngram": 3}


def by_searching(ids: list[int], k: int, max_ngram: int, min_ngram: int) -> list[int]:
    """The same choice without an index: look through the whole text each time."""
    for size in range(min(max_ngram, len(ids) - 1), min_ngram - 1, -1):
        suffix = ids[-size:]
        starts = [end for end in range(size, len(ids)) if ids[end - size : end] == suffix]
        if starts:
            full = [start for start in starts if start + k <= len(ids)]
            start = full[-1] if full else starts[0]
            return ids[start : start + k]
    return []


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=8),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_the_index_finds_what_searching_finds_as_the_text_grows(blocks, k, min_ngram, longer):
    max_ngram = min_ngram + longer
    session = PromptLookup(max_ngram, min_ngram).open(run_context(TARGET))
    ids: list[int] = []
    for number, block in enumerate(blocks):
        ids += block
        if number == 0:
            session.prefill(ids, {})
        else:
            session.commit(ids, {})
        assert ids_of(propose(session, ids, k)[0]) == by_searching(ids, k, max_ngram, min_ngram)


def test_two_sessions_share_nothing():
    drafter = PromptLookup(2, 1)
    first, second = drafter.open(run_context(TARGET)), drafter.open(run_context(TARGET))
    first.prefill([1, 2, 3, 1], {})
    second.prefill([4, 5], {})
    assert ids_of(propose(first, [1, 2, 3, 1], 2)[0]) == [2, 3]
    assert propose(second, [4, 5, 1], 2)[0] == []
