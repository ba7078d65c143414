"""The draft head's session: its entries come from the target's features, whatever was accepted or taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from specviz.config import RunSettings
from specviz.drafters.base import draft_model_of
from specviz.drafters.draft_head import DraftHead
from specviz.drafters.lookup_first import LookupFirst
from specviz.drafters.prompt_lookup import PromptLookup
from specviz.engine.draft_files import DraftFile
from specviz.engine.draft_head import HeadOutput
from specviz.engine.draft_loading import head_network, open_draft
from specviz.engine.hf_model import TransformersModel
from specviz.engine.kv_memory import KVMemory
from specviz.engine.language_model import LanguageModel
from specviz.engine.prefill import CHUNK_TOKENS
from specviz.errors import BadRequest
from tests.draft_folders import bigram_head, bigram_target, extended_head, random_head, some_vocab_ids
from tests.engine.lean_models import float32_of, int8_of
from tests.engine.runs import finished, generate_ids, new_ids, rounds, run_events, statuses, tiny_draft, tiny_target
from tests.tiny_models import MAX_POSITIONS, build_model, tiny_model

PROMPT = [5, 6, 7, 8, 9]
CLOSE = {"atol": 2e-4, "rtol": 2e-4}


@cache
def bigram() -> Any:
    return bigram_target()


@cache
def bigram_file(int8: bool = False) -> DraftFile:
    return bigram_head(bigram(), torch.arange(3, bigram().config.vocab_size), int8=int8)


def target_of(path: str) -> LanguageModel:
    if path == "general":
        return TransformersModel(bigram(), "bigram")
    return float32_of(bigram()) if path == "lean float32" else int8_of(bigram())


def drafter_of(file: DraftFile, target: LanguageModel, precision: str = "auto") -> DraftHead:
    return DraftHead(open_draft(file, target, precision))


# --- the oracle ---------------------------------------------------------------------------------


@dataclass
class Call:
    """One pass of a head: its entries before (keys and values), and what it was asked and answered."""

    start: int
    next_ids: list[int]
    is_true: bool
    held: tuple[Tensor, Tensor]
    output: HeadOutput | None


@dataclass(eq=False)
class WatchedHead:
    """A head that remembers its calls."""

    inner: Any
    calls: list[Call] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, features, next_ids: Sequence[int], cache, *, wants_output=True):
        return self._note(
            True, next_ids, cache, lambda: self.inner.read(features, next_ids, cache, wants_output=wants_output)
        )

    def go_on(self, state, next_id: int, cache):
        return self._note(False, [next_id], cache, lambda: self.inner.go_on(state, next_id, cache))

    def _note(self, is_true, next_ids, cache, call):
        keys, values = (torch.as_tensor(part) for part in (cache.keys, cache.values))
        held = tuple(part.reshape(part.shape[-3:])[:, : cache.length].clone() for part in (keys, values))
        start = cache.length
        output = call()
        self.calls.append(Call(start, list(next_ids), is_true, held, output))
        return output


def check_against_recomputation(file: DraftFile, watched: WatchedHead, text: list[int], module) -> None:
    """Every call's answer, and what the cache held before it, from a whole pass over the text as it stood."""
    net, embedding = head_network(file), module.get_input_embeddings().weight
    head = embedding if file.is_tied else file.floats()["head"]
    with torch.no_grad():
        hidden = module(torch.tensor([text]), output_hidden_states=True).hidden_states
        fused = net.fused(torch.stack([hidden[layer][0] for layer in file.facts.feature_layers], 1))
    chain: list[Tensor] = []
    ids: list[int] = []
    for call in watched.calls:
        if call.is_true:
            num_true = call.start + len(call.next_ids)
            chain, ids = [], text[: num_true + 1]
            assert call.next_ids == ids[call.start + 1 :]
            states_in = fused[:num_true]
        else:
            ids = [*ids, *call.next_ids]
            states_in = torch.cat([fused[:num_true], *chain])
        keys, values, states, logits = extended_head(net, states_in, ids, embedding, head)
        for held, expected in zip(call.held, (keys, values), strict=True):
            torch.testing.assert_close(held, expected[:, : call.start], **CLOSE)
        if call.output is not None:
            can = file.vocab_ids
            if file.is_tied:
                can = torch.tensor(sorted({*can.tolist(), *ids[1:]}))
                logits = logits[:, can]
            torch.testing.assert_close(call.output.logits[0, can], logits[-1], **CLOSE)
            assert int(call.output.logits.isfinite().sum()) == len(can)
            chain.append(states[-1:])


@pytest.mark.parametrize("precision", ["auto", "float32"], ids=["lean head", "torch head"])
@pytest.mark.parametrize("path", ["general", "lean float32"])
@pytest.mark.parametrize("k", [1, 4, "auto"])
def test_entries_and_outputs_are_those_of_the_whole_text_after_any_rounds(path, precision, k):
    target, file = target_of(path), bigram_file()
    drafter = drafter_of(file, target, precision)
    watched = WatchedHead(drafter.model)
    settings = {"num_draft_tokens": k, "max_draft_tokens": 6, "draft_threshold": 0.05, "max_new_tokens": 40}
    events = run_events(target, PROMPT, drafter=DraftHead(watched), drafter_kind="draft_head", **settings)
    text = PROMPT + new_ids(events)
    seen = {status for event in rounds(events) for status in statuses(event)}
    assert {"accepted", "rejected"} <= seen
    if k != 1:
        assert max(statuses(event).count("accepted") for event in rounds(events)) >= 2
    check_against_recomputation(file, watched, text, bigram())
    assert sum(not call.is_true for call in watched.calls) > 0 or k == 1


@pytest.mark.parametrize("k", [1, 4, "auto"])
def test_entries_are_those_of_the_whole_text_where_lookups_come_between(k):
    target, file = target_of("lean float32"), bigram_file()
    watched = WatchedHead(drafter_of(file, target).model)
    drafter = LookupFirst.before(DraftHead(watched), PromptLookup(4, 1))
    settings = {"num_draft_tokens": k, "draft_threshold": 0.05, "max_new_tokens": 80, "temperature": 1.2, "seed": 5}
    events = run_events(target, PROMPT, drafter=drafter, drafter_kind="draft_head", **settings)
    sources = [event["draft"][0].get("looked_up", False) for event in rounds(events) if event["draft"]]
    changes = sum(before != after for before, after in pairwise(sources))
    assert changes >= 2, "lookups and the head take turns"
    check_against_recomputation(file, watched, PROMPT + new_ids(events), bigram())


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_the_same_when_it_is_sampled(temperature):
    target, file = target_of("lean float32"), bigram_file()
    watched = WatchedHead(drafter_of(file, target).model)
    drafter = DraftHead(watched)
    events = run_events(target, PROMPT, drafter=drafter, drafter_kind="draft_head", temperature=temperature, seed=3)
    check_against_recomputation(file, watched, PROMPT + new_ids(events), bigram())


def test_a_head_that_knows_nothing_is_recomputed_too():
    module = tiny_model()
    target, file = TransformersModel(module, "tiny"), random_head(module)
    watched = WatchedHead(drafter_of(file, target).model)
    events = run_events(target, PROMPT, drafter=DraftHead(watched), drafter_kind="draft_head", max_new_tokens=30)
    check_against_recomputation(file, watched, PROMPT + new_ids(events), module)
    assert finished(events)["counts"]["rejected"] > 10


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("precision", ["auto", "float32"], ids=["lean head", "torch head"])
def test_a_head_that_says_its_text_too_is_recomputed_turn_after_turn(precision, temperature):
    """What it can say is what its text says then, whatever was drafted and taken back, and in kept caches too."""
    module = build_model("llama", tie_word_embeddings=True)
    target, file, memory = float32_of(module), random_head(module, some_vocab_ids(30)), KVMemory()
    watched = WatchedHead(drafter_of(file, target, precision).model)
    text, num_drafted = [5, 6, 7, 300], 0
    for more in ([301], [302, 303], [8]):
        prompt = [*text[:-2], *more]
        watched.calls.clear()
        events = turn(target, memory, prompt, "draft_head", DraftHead(watched), temperature=temperature, seed=1)
        text = prompt + new_ids(events)
        check_against_recomputation(file, watched, text, module)
        num_drafted += sum(token["id"] not in file.vocab_ids for event in rounds(events) for token in event["draft"])
    assert watched.calls[0].start > 10 and num_drafted > 0


# --- what it says is what the target says -------------------------------------------------------


@pytest.mark.parametrize("k", [*range(1, 9), "auto"])
@pytest.mark.parametrize("path", ["general", "lean float32", "lean int8"])
def test_greedy_text_is_the_targets_own(path, k):
    target = target_of(path)
    drafter = drafter_of(bigram_file(int8=path == "lean int8"), target)
    settings = {"num_draft_tokens": k, "draft_threshold": 0.05, "max_new_tokens": 50}
    events = run_events(target, PROMPT, drafter=drafter, drafter_kind="draft_head", **settings)
    assert new_ids(events) == new_ids(run_events(target, PROMPT, max_new_tokens=50))
    if path == "general":
        assert new_ids(events) == generate_ids(bigram(), PROMPT, 50)
    counts = finished(events)["counts"]
    assert counts["accepted"] > 10 and counts["rounds"] < 45


@pytest.mark.parametrize(
    "changes", [{"repetition_penalty": 1.3}, {"suppress_token_ids": (4, 30, 31)}, {"min_new_tokens": 20}]
)
def test_penalties_and_suppressed_tokens_change_both_sides_alike(changes):
    target = target_of("lean float32")
    drafter = drafter_of(bigram_file(), target)
    plain = new_ids(run_events(target, PROMPT, max_new_tokens=30, eos_token_ids=[7, 40], **changes))
    events = run_events(
        target, PROMPT, drafter=drafter, drafter_kind="draft_head", max_new_tokens=30, eos_token_ids=[7, 40], **changes
    )
    assert new_ids(events) == plain


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("trace_detail", ["none", "full"])
def test_where_all_that_it_can_say_is_suppressed_it_drafts_nothing(temperature, trace_detail):
    module = bigram()
    target, file = target_of("lean float32"), bigram_head(module, torch.tensor([11, 12]))
    settings = {"temperature": temperature, "suppress_token_ids": (11, 12), "max_new_tokens": 12}
    events = run_events(
        target,
        PROMPT,
        drafter=drafter_of(file, target),
        drafter_kind="draft_head",
        trace_detail=trace_detail,
        **settings,
    )
    assert [event["draft_stop"] for event in rounds(events)][:-1] == ["confidence"] * 11
    assert finished(events)["counts"]["drafted"] == 0
    assert new_ids(events) == new_ids(run_events(target, PROMPT, **settings))


def test_an_end_token_that_may_not_come_yet_is_not_drafted():
    target, file = target_of("lean float32"), bigram_head(bigram(), torch.tensor([11]))
    settings = {"min_new_tokens": 5, "eos_token_ids": [11], "max_new_tokens": 10, "num_draft_tokens": 2}
    events = run_events(target, PROMPT, drafter=drafter_of(file, target), drafter_kind="draft_head", **settings)
    num_committed = 0
    for event in rounds(events):
        for place, token in enumerate(event["draft"]):
            assert num_committed + place >= 5 and token["id"] == 11
        num_committed += len(event["committed"])


# --- where it begins and ends -------------------------------------------------------------------


def test_a_text_of_one_token_is_drafted_after_from_the_second_round_on():
    target = target_of("lean float32")
    events = run_events(target, [5], drafter=drafter_of(bigram_file(), target), drafter_kind="draft_head")
    assert len(rounds(events)[0]["draft"]) == 0 and len(rounds(events)[1]["draft"]) > 0
    assert new_ids(events) == new_ids(run_events(target, [5]))


def test_a_head_whose_context_is_full_drafts_nothing_and_the_run_goes_on():
    target, file = target_of("lean float32"), bigram_head(bigram(), max_positions=16)
    events = run_events(target, PROMPT, drafter=drafter_of(file, target), drafter_kind="draft_head", max_new_tokens=40)
    assert new_ids(events) == new_ids(run_events(target, PROMPT, max_new_tokens=40))
    assert [event["draft_stop"] for event in rounds(events)].count("context") > 5
    assert max(event["cache"]["draft"]["peak"] for event in rounds(events)) == 16
    long = run_events(target, list(range(5, 30)), drafter=drafter_of(file, target), drafter_kind="draft_head")
    assert finished(long)["counts"]["drafted"] == 0


def test_it_drafts_up_to_the_targets_own_end():
    target = target_of("lean float32")
    events = run_events(
        target, PROMPT, drafter=drafter_of(bigram_file(), target), drafter_kind="draft_head", max_new_tokens=400
    )
    assert finished(events)["reason"] == "context"
    assert len(PROMPT) + len(new_ids(events)) == MAX_POSITIONS
    assert new_ids(events) == new_ids(run_events(target, PROMPT, max_new_tokens=400))


def test_the_caches_are_accounted_for():
    target = target_of("lean float32")
    drafter = drafter_of(bigram_file(), target)
    events = run_events(target, PROMPT, drafter=drafter, drafter_kind="draft_head", max_new_tokens=30)
    assert events[0]["cache"] == {"target": len(PROMPT) - 1, "draft": len(PROMPT) - 2}
    length = len(PROMPT)
    for event in rounds(events):
        own = event["cache"]["draft"]
        length_before = length
        length += len(event["committed"])
        assert own["after"] <= length_before - 1, "entries of what the target has seen"
        assert own["bytes"] == own["after"] * drafter.model.kv_bytes_per_position
        if event["draft"]:
            assert own["peak"] == length_before - 1 + len(event["draft"]) - 1
            assert own["after"] == length_before - 1


def test_a_long_prompt_is_read_in_chunks_that_can_be_interrupted():
    module = bigram_target(max_positions=4 * CHUNK_TOKENS)
    target, file = float32_of(module), bigram_head(module, max_positions=4 * CHUNK_TOKENS)
    prompt = [i % 300 for i in range(3 * CHUNK_TOKENS)]
    asked = []

    def stops_after(num_times: int):
        asked.clear()
        return lambda: asked.append(1) or len(asked) > num_times

    watched = WatchedHead(drafter_of(file, target).model)
    for num_times, num_passes in ((4, 1), (5, 2)):
        watched.calls.clear()
        events = run_events(
            target,
            prompt,
            drafter=DraftHead(watched),
            drafter_kind="draft_head",
            engine={"is_cancelled": stops_after(num_times)},
        )
        assert finished(events)["reason"] == "cancelled"
        assert len(watched.calls) == num_passes
    events = run_events(target, prompt, drafter=drafter_of(file, target), drafter_kind="draft_head", max_new_tokens=6)
    assert new_ids(events) == new_ids(run_events(target, prompt, max_new_tokens=6))


# --- conversations ------------------------------------------------------------------------------


def turn(target, memory, prompt, kind, drafter=None, draft=None, **settings):
    settings = {"max_new_tokens": 14} | settings
    return run_events(
        target, prompt, drafter=drafter, draft=draft, drafter_kind=kind, engine={"memory": memory}, **settings
    )


@pytest.mark.parametrize("common", [0, 1, 2, 3, 5, 12, 19])
def test_a_kept_conversation_that_goes_on_from_any_common_beginning(common):
    target, file, memory = target_of("general"), bigram_file(), KVMemory()
    watched = WatchedHead(drafter_of(file, target).model)
    drafter = DraftHead(watched)
    first = PROMPT + new_ids(turn(target, memory, PROMPT, "draft_head", drafter))
    assert len(first) == 19
    second = [*first[:common], *(i for i in range(30, 37) if i not in first)]
    watched.calls.clear()
    reusable = min(memory.reusable(target, second), memory.reusable(watched, second))
    assert reusable <= max(common - 1, 0)
    text = second + new_ids(turn(target, memory, second, "draft_head", drafter))
    assert text == second + new_ids(run_events(target, second, max_new_tokens=14))
    assert watched.calls[0].start == reusable
    check_against_recomputation(file, watched, text, bigram())


@pytest.mark.parametrize("others", ["none", "prompt_lookup", "early_exit", "draft_model"])
def test_a_turn_with_another_drafter_between_two_of_the_head(others):
    target, file, memory = target_of("general"), bigram_file(), KVMemory()
    watched = WatchedHead(drafter_of(file, target).model)
    text = list(PROMPT)
    for kind in ("draft_head", others, "draft_head", "draft_head"):
        prompt = [*text, 40, 41, 42]
        watched.calls.clear()
        drafter = DraftHead(watched) if kind == "draft_head" else None
        draft = tiny_draft() if kind == "draft_model" else None
        text = prompt + new_ids(turn(target, memory, prompt, kind, drafter, draft))
        assert text == prompt + new_ids(run_events(target, prompt, max_new_tokens=14))
        check_against_recomputation(file, watched, text, bigram())
    assert watched.calls[0].start > len(PROMPT), "the last turn found what the one before had kept"


def test_two_runs_at_a_time_do_not_share_entries():
    target, memory = target_of("lean float32"), KVMemory()
    drafter = drafter_of(bigram_file(), target)
    text = PROMPT + new_ids(turn(target, memory, PROMPT, "draft_head", drafter))
    one, other = memory.take(drafter.model, [*text, 4]), memory.take(drafter.model, [*text, 4])
    assert one is not other and one.length > 0 and other.length == 0


# --- what it says of itself ---------------------------------------------------------------------


def test_its_description_is_json_plain_and_complete():
    target = target_of("lean float32")
    drafter = drafter_of(bigram_file(), target)
    told = drafter.describe()
    assert told["kind"] == "draft_head" and told["feature_layers"] == [1, 2, 3]
    assert told["cut_vocab_size"] == len(bigram_file().vocab_ids) < told["vocab_size"] == target.vocab_size
    assert told["num_params"] == drafter.model.num_params
    assert told["shared_weight_bytes"] == bigram().get_input_embeddings().weight.numel() * 4
    assert told["kv_bytes_per_position"] == 2 * 4 * 2 * 12
    assert draft_model_of(drafter) is drafter.model


@pytest.mark.parametrize("draft", [None, tiny_draft()], ids=["nothing", "a draft model"])
def test_without_a_head_it_is_refused_with_the_choices(draft):
    with pytest.raises(BadRequest, match=r"'draft_head', but there is no draft head for .*prompt_lookup"):
        DraftHead.for_run(tiny_target(), draft, RunSettings(drafter="draft_head"))
