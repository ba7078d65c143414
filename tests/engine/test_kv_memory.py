"""The KV of earlier turns: used again exactly as far as the texts agree, and never by two runs at once."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specviz.engine.kv_memory import KVMemory
from tests.engine.runs import byte_vocabulary, new_ids, run_events, tiny_draft, tiny_target
from tests.table_model import TableModel, random_table

FIRST_TURN = [5, 6, 7, 8, 9]


@pytest.mark.parametrize("drafter_kind", ["none", "prompt_lookup", "early_exit", "draft_model"])
def test_a_second_turn_gives_what_it_gives_without_memory(drafter_kind):
    target, draft, memory = tiny_target(), tiny_draft(), KVMemory()
    settings = {"drafter_kind": drafter_kind, "draft": draft, "max_new_tokens": 12}
    answer = new_ids(run_events(target, FIRST_TURN, engine={"memory": memory}, **settings))
    second_turn = [*FIRST_TURN, *answer, 11, 12, 13]
    events = run_events(target, second_turn, engine={"memory": memory}, **settings)
    assert new_ids(events) == new_ids(run_events(target, second_turn, **settings))
    assert events[0]["cache"]["target"] == len(second_turn) - 1


def test_only_what_is_new_is_fed():
    target, memory = TableModel(random_table(8)), KVMemory()
    prompt = [1, 2, 3]
    answer = new_ids(run_events(target, prompt, engine={"memory": memory}, max_new_tokens=4))
    target.calls.clear()
    second_turn = [*prompt, *answer, 5, 6]
    run_events(target, second_turn, engine={"memory": memory}, max_new_tokens=1)
    kept = len(prompt) + len(answer) - 1  # the newest token of the first turn was pending
    assert target.calls[0].start == kept
    assert target.calls[0].token_ids == tuple(second_turn[kept:-1])


@given(
    kept=st.lists(st.integers(1, 7), min_size=1, max_size=9), prompt=st.lists(st.integers(1, 7), min_size=1, max_size=9)
)
def test_the_common_beginning_and_no_more(kept, prompt):
    model, memory = TableModel(random_table(8)), KVMemory()
    cache = model.new_cache()
    model.forward(kept, cache)
    memory.keep(model, kept, cache)
    promised = memory.reusable(model, prompt)
    taken = memory.take(model, prompt)
    assert taken.length == promised < len(prompt)
    assert taken.ids == prompt[:promised]
    assert promised in (len(kept), len(prompt) - 1) or kept[promised] != prompt[promised]


def test_a_cache_is_given_out_once():
    model, memory = TableModel(random_table(8)), KVMemory()
    cache = model.new_cache()
    model.forward([1, 2, 3], cache)
    memory.keep(model, [1, 2, 3], cache)
    first, second = memory.take(model, [1, 2, 3, 4]), memory.take(model, [1, 2, 3, 4])
    assert first is cache and second is not cache and second.length == 0


def test_caches_of_another_model_are_not_used():
    one, other, memory = TableModel(random_table(8)), TableModel(random_table(8, seed=1)), KVMemory()
    run_events(one, [1, 2, 3], engine={"memory": memory}, max_new_tokens=4)
    assert memory.reusable(one, [1, 2, 3, 4]) > 0
    assert memory.reusable(other, [1, 2, 3, 4]) == 0


def test_a_cancelled_turn_leaves_a_cache_that_can_be_used():
    target, memory, asked = TableModel(random_table(8)), KVMemory(), []

    def cancelled_after_three_rounds() -> bool:
        asked.append(1)
        return len(asked) > 4

    events = run_events(
        target, [1, 2, 3], engine={"memory": memory, "is_cancelled": cancelled_after_three_rounds}, max_new_tokens=50
    )
    assert events[-1]["reason"] == "cancelled"
    second_turn = [1, 2, 3, *new_ids(events), 4]
    again = run_events(target, second_turn, engine={"memory": memory}, max_new_tokens=5)
    assert new_ids(again) == target.greedy_ids(second_turn, 5)


def test_a_model_that_nobody_else_keeps_is_not_kept_for_its_cache():
    memory = KVMemory()
    target, draft = tiny_target(), TableModel(random_table(8))
    run_events(draft, [1, 2, 3], engine={"memory": memory}, max_new_tokens=4)
    run_events(target, FIRST_TURN, engine={"memory": memory}, max_new_tokens=4)
    dropped = weakref.ref(draft)
    del draft
    gc.collect()
    assert dropped() is None
    assert memory.reusable(target, [*FIRST_TURN, 3]) == len(FIRST_TURN)


def test_the_tokens_of_earlier_turns_are_counted():
    vocabulary = byte_vocabulary()
    history = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    _, ids = vocabulary.encode("and now?", raw=False, history=history)
    num_earlier = vocabulary.num_earlier_tokens(ids, None, history)
    assert "hi" in vocabulary.decode(ids[:num_earlier])
    assert "and now?" in vocabulary.decode(ids[num_earlier:])
    assert vocabulary.num_earlier_tokens(ids, None, []) == 0
