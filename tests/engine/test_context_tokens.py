"""Beside its cut vocabulary a tied draft can say the tokens of its own text: those and no others, whatever was drafted and taken back."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from specviz.engine.context_tokens import FIRST_CAPACITY, ContextTokens, TiedRows
from specviz.engine.draft_loading import open_draft
from specviz.engine.draft_modules import full_width_llama
from specviz.engine.kv_memory import KVMemory
from specviz.engine.lean_head import LeanHead
from specviz.engine.torch_head import TorchHead
from tests.draft_folders import extended_head, head_network, model_draft, random_head, recomputed_head, some_vocab_ids
from tests.engine.lean_models import float32_of, int8_of, some_ids
from tests.engine.runs import new_ids, rounds, run_events
from tests.tiny_models import VOCAB_SIZE, build_model

NUM_KNOWN = 40
CLOSE = {"atol": 1e-4, "rtol": 1e-4}
PRECISIONS = pytest.mark.parametrize("precision", ["auto", "float32"], ids=["lean", "torch"])
KINDS = pytest.mark.parametrize("kind", ["draft_head", "draft_model"])


@cache
def module_of(*, tied: bool = True):
    return build_model("llama", tie_word_embeddings=tied)


def file_of(kind: str, *, int8: bool = False, tied: bool = True):
    make = random_head if kind == "draft_head" else model_draft
    return make(module_of(tied=tied), some_vocab_ids(NUM_KNOWN), int8=int8)


def opened(kind: str, precision: str, *, int8: bool = False, tied: bool = True):
    target = (int8_of if int8 else float32_of)(module_of(tied=tied))
    file = file_of(kind, int8=int8, tied=tied)
    return file, open_draft(file, target, precision)


def sayable(logits: Tensor) -> set[int]:
    return set((~torch.isneginf(logits)).nonzero().flatten().tolist())


def features_of(file, length: int) -> tuple[Tensor, list[int]]:
    ids, target = some_ids(length + 1, 3), float32_of(module_of())
    output = target.forward(ids[:length], target.new_cache(), feature_layers=file.facts.feature_layers)
    return torch.stack([output.features[layer] for layer in file.facts.feature_layers], 1), ids


def whole_logits(file, ids) -> Tensor:
    whole = full_width_llama(file, module_of().get_input_embeddings().weight, torch.float32)
    with torch.no_grad():
        return whole(torch.tensor([ids])).logits[0]


# --- the tokens themselves ----------------------------------------------------------------------

EMBEDDING = torch.arange(300.0)[:, None] * torch.tensor([1.0, 10.0])
TIED = TiedRows(EMBEDDING, torch.float32, torch.device("cpu"))


@given(st.lists(st.one_of(st.lists(st.integers(0, 12), max_size=6), st.integers(0, 20)), max_size=12))
def test_what_is_held_is_a_function_of_the_text(steps):
    context, text = ContextTokens({2, 3, 5}, TIED), []
    for step in steps:
        if isinstance(step, list):
            context.read(step, len(text))
            text += step
        else:
            text = text[:step]
            context.truncate(len(text))
        expected = list(dict.fromkeys(token_id for token_id in text if token_id not in {2, 3, 5}))
        rows, ids = context.rows_and_ids()
        assert context.token_ids == ids.tolist() == expected and len(context) == len(expected)
        assert torch.equal(rows, EMBEDDING[expected])


def test_rows_are_kept_in_buffers_that_grow_seldom():
    context, places = ContextTokens(frozenset(), TIED), set()
    for token_id in range(2 * FIRST_CAPACITY):
        context.read([token_id], token_id)
        places.add(context.rows_and_ids()[0].data_ptr())
    assert len(places) == 2
    assert torch.equal(context.rows_and_ids()[0], EMBEDDING[: 2 * FIRST_CAPACITY])


def test_a_pass_that_failed_leaves_nothing():
    context = ContextTokens({1}, TIED)
    context.read([7, 8], 0)
    context.read([9], 1)  # the entry of 8 was never made
    assert context.token_ids == [7, 9]


def test_rows_are_smoothed_as_the_heads_input_is():
    tied = TiedRows(EMBEDDING, torch.float32, torch.device("cpu"), torch.tensor([0.5, 2.0]))
    assert torch.equal(tied.of([3]), torch.tensor([[1.5, 60.0]]))


# --- a draft head -------------------------------------------------------------------------------


@PRECISIONS
def test_a_head_says_its_text_with_the_targets_own_rows_whatever_was_taken_back(precision):
    file, head = opened("draft_head", precision)
    assert isinstance(head, LeanHead if precision == "auto" else TorchHead)
    features, ids = features_of(file, 40)
    embedding, known = module_of().get_input_embeddings().weight, set(file.vocab_ids.tolist())
    *_, states, logits = recomputed_head(file, features, ids, embedding, embedding)
    cache, done = head.new_cache(), 0
    for size in (7, 1, 12, 1, 1, 5, 13):
        output = head.read(features[done : done + size], ids[done + 1 : done + size + 1], cache)
        done += size
        can = sayable(output.logits[0])
        assert can == known | set(ids[1 : done + 1]) > known
        torch.testing.assert_close(output.logits[0, sorted(can)], logits[done - 1, sorted(can)], **CLOSE)
        unseen = [token_id for token_id in range(VOCAB_SIZE) if token_id not in can][:2]
        guess = head.go_on(output.state, unseen[0], cache)
        assert sayable(guess.logits[0]) == can | {unseen[0]}
        head.go_on(guess.state, unseen[1], cache)
        cache.truncate(done)
        again = head.read(features[:1], ids[1:2], cache)
        assert sayable(again.logits[0]) == can
        cache.truncate(done)
    torch.testing.assert_close(output.state[0], states[-1], **CLOSE)


def test_both_heads_give_what_they_go_on_from_the_same_logits():
    chosen = []
    for precision in ("auto", "float32"):
        file, head = opened("draft_head", precision)
        features, ids = features_of(file, 12)
        cache = head.new_cache()
        outputs = [head.read(features, ids[1:], cache)]
        for token_id in (9, 200, 411):
            outputs.append(head.go_on(outputs[-1].state, token_id, cache))
        chosen.append(torch.cat([output.logits for output in outputs]))
    torch.testing.assert_close(*chosen, **CLOSE)
    net, embedding = head_network(file), module_of().get_input_embeddings().weight
    *_, logits = extended_head(net, net.fused(features), ids, embedding, embedding)
    torch.testing.assert_close(chosen[0][0, ids[1:]], logits[-1, ids[1:]], **CLOSE)


def test_a_head_in_8_bits_says_its_text_as_well_as_its_cut():
    """Its input is smoothed as the target's is, and so are the rows."""
    file, head = opened("draft_head", "auto", int8=True)
    features, ids = features_of(file, 40)
    embedding = module_of().get_input_embeddings().weight
    expected = recomputed_head(file, features, ids, embedding, embedding)[-1][-1]
    together, alone = head.new_cache(), head.new_cache()
    output = head.read(features, ids[1:], together)
    for entry in range(40):
        single = head.read(features[entry : entry + 1], ids[entry + 1 : entry + 2], alone)
    assert torch.equal(output.logits, single.logits)
    more = sorted(set(ids[1:]) - set(file.vocab_ids.tolist()))
    for part in (more, file.vocab_ids):
        assert torch.corrcoef(torch.stack([output.logits[0, part], expected[part]]))[0, 1] > 0.995
        slope = (output.logits[0, part] @ expected[part]) / (expected[part] @ expected[part])
        assert float(slope) == pytest.approx(1, abs=0.03)


def test_a_head_in_bfloat16_says_its_text_too():
    file, head = opened("draft_head", "bfloat16")
    features, ids = features_of(file, 9)
    output = head.read(features, ids[1:], head.new_cache())
    assert output.logits.dtype == torch.bfloat16
    assert sayable(output.logits[0]) == set(file.vocab_ids.tolist()) | set(ids[1:])


# --- a draft model ------------------------------------------------------------------------------


@PRECISIONS
def test_a_models_row_says_the_text_up_to_itself(precision):
    file, draft = opened("draft_model", precision)
    ids, known = some_ids(30), set(file.vocab_ids.tolist())
    expected = whole_logits(file, ids)
    cache = draft.new_cache()
    draft.forward(ids[:8], cache, num_logits=0)
    logits = draft.forward(ids[8:], cache).logits
    for row, place in zip(logits, range(8, 30), strict=True):
        can = sorted(sayable(row))
        assert set(can) == known | set(ids[: place + 1])
        torch.testing.assert_close(row[can], expected[place, can], **CLOSE)
    cache.truncate(5)
    assert sayable(draft.forward([ids[0]], cache).logits[0]) == known | set(ids[:5])


@pytest.mark.parametrize("int8", [False, True])
def test_many_rows_are_one_row_after_the_other(int8):
    _, draft = opened("draft_model", "auto", int8=int8)
    ids = some_ids(20)
    together, alone = draft.new_cache(), draft.new_cache()
    logits = draft.forward(ids, together).logits
    singles = torch.cat([draft.forward([token_id], alone).logits for token_id in ids])
    torch.testing.assert_close(logits, singles, **({"atol": 0, "rtol": 0} if int8 else CLOSE))
    assert together.context.token_ids == alone.context.token_ids


@PRECISIONS
def test_features_are_those_that_were_asked_for(precision):
    _, draft = opened("draft_model", precision)
    last, ids = draft.num_layers, some_ids(6)
    for layers in ((), (1,), (1, last)):
        output = draft.forward(ids, draft.new_cache(), num_logits=2, feature_layers=layers)
        assert set(output.features) == set(layers) and output.logits.shape == (2, VOCAB_SIZE)
        assert all(features.shape[0] == 6 for features in output.features.values())


def test_a_cache_that_knows_its_text_counts_keys_and_values_as_before():
    _, draft = opened("draft_model", "auto")
    cache = draft.new_cache()
    draft.forward(some_ids(6), cache, num_logits=1)
    assert cache.length == 6 and cache.num_bytes == 6 * draft.kv_bytes_per_position


# --- both ---------------------------------------------------------------------------------------


@PRECISIONS
@KINDS
def test_a_draft_with_an_output_head_of_its_own_keeps_to_its_cut(kind, precision):
    file, draft = opened(kind, precision, tied=False)
    ids, cache = some_ids(6), draft.new_cache()
    if kind == "draft_head":
        logits = draft.read(torch.randn(5, 3, 48), ids[1:], cache).logits
    else:
        logits = draft.forward(ids, cache, num_logits=1).logits
    assert sayable(logits[0]) == set(file.vocab_ids.tolist())
    assert draft.cut_facts["says_context"] is False
    assert opened(kind, precision)[1].cut_facts["says_context"] is True


@pytest.mark.parametrize("k", [1, 4, "auto"])
@pytest.mark.parametrize("int8", [False, True])
@KINDS
def test_a_run_drafts_what_stands_in_its_text_and_says_what_the_target_says(kind, int8, k):
    target, (file, draft) = (int8_of if int8 else float32_of)(module_of()), opened(kind, "auto", int8=int8)
    known = set(file.vocab_ids.tolist())
    prompt = [token_id for token_id in some_ids(60, 8) if token_id not in known]
    settings = {"num_draft_tokens": k, "draft_threshold": 0.05, "max_new_tokens": 40}
    events = run_events(target, prompt, draft=draft, drafter_kind=kind, **settings)
    assert new_ids(events) == new_ids(run_events(target, prompt, max_new_tokens=40))
    text, met = list(prompt), set()
    for event in rounds(events):
        drafted = [token["id"] for token in event["draft"]]
        for token_id in drafted:
            assert token_id in known or token_id in text[1 if kind == "draft_head" else 0 :]
        met |= set(drafted) - known
        text += event["committed"]
    assert met


@KINDS
def test_a_kept_cache_drafts_as_a_new_one_does(kind):
    """In 8 bits all rows are the same alone and together, so that the drafts of two runs can be compared one by one."""
    target, (file, draft), memory = int8_of(module_of()), opened(kind, "auto", int8=True), KVMemory()
    known = set(file.vocab_ids.tolist())
    prompt = [token_id for token_id in some_ids(30, 8) if token_id not in known]
    settings = {"draft": draft, "drafter_kind": kind, "num_draft_tokens": 4, "max_new_tokens": 20}
    for cut in (None, 12, -3):
        prompt = [*prompt[:cut], 401, 402]
        kept = run_events(target, prompt, engine={"memory": memory}, **settings)
        new = run_events(target, prompt, **settings)
        drafts = [[[token["id"] for token in event["draft"]] for event in rounds(events)] for events in (kept, new)]
        assert drafts[0] == drafts[1] and any(token_id not in known for draft in drafts[0] for token_id in draft)
        prompt = [*prompt, *new_ids(kept)]
