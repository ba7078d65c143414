"""A draft made on the device at once is the draft that is made token by token, and asks the device nothing on the way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from specviz.drafters import DraftModel, chain
from specviz.drafters.chain import DraftChain
from specviz.drafters.early_exit import EarlyExit
from specviz.early_exit.exit_heads import PlainHeads
from specviz.engine import static_loading
from specviz.engine.draft_loading import open_draft
from specviz.engine.static_model import StaticLayer, StaticModel, StaticWeights
from specviz.errors import RunFailed
from tests.draft_folders import bigram_head, bigram_target, model_draft, some_vocab_ids
from tests.drafters.run_contexts import run_context
from tests.engine.runs import finished, new_ids, rounds, run_events
from tests.engine.static_models import DEVICES, static_draft, static_of, static_target
from tests.tiny_models import build_model

GREEDY = {"temperature": 0.0}
SAMPLED = {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "seed": 5}
PROMPTS = ([5, 9, 7, 4, 30, 31, 5, 9], [2, 77, 78], list(range(20, 50)))


def without_times(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was drafted, judged and committed, with all probabilities."""
    return [{key: event[key] for key in ("draft", "extra", "committed", "draft_stop")} for event in rounds(events)]


def both_ways(monkeypatch, target, draft, kind: str, prompt_ids, **settings) -> list[list[dict[str, Any]]]:
    """The events of a run that drafts in chains, and of one that drafts token by token."""
    found = []
    for may_chain in (True, False):
        made: list[DraftChain] = []
        with monkeypatch.context() as patch:
            patch.setattr(draft, "drafts_in_chains", may_chain)
            patch.setattr(chain, "to_host", lambda rows, made=made: made.append(rows) or rows.cpu())
            patch.setattr("specviz.engine.speculative.to_host", chain.to_host)
            events = run_events(
                target, prompt_ids, draft=draft, drafter_kind=kind, max_new_tokens=24, trace_detail="full", **settings
            )
        drafted = [event for event in rounds(events) if event["draft"]]
        assert len(made) == (len(drafted) if may_chain else 0), "one copy a round that drafts"
        found.append(events)
    return found


def assert_same(one: Any, other: Any) -> None:
    """Equal, numbers up to rounding: a row may be computed in another place of memory."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5)
    else:
        assert one == other


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_draft_model_drafts_the_same_in_chains(k, settings, device, monkeypatch):
    counts = dict.fromkeys(("accepted", "rejected"), 0)
    for prompt_ids in PROMPTS:
        target, draft = static_target(device), static_draft(device)
        chained, looped = both_ways(
            monkeypatch, target, draft, "draft_model", prompt_ids, num_draft_tokens=k, **settings
        )
        assert_same(without_times(chained), without_times(looped))
        assert new_ids(chained) == new_ids(looped)
        for count in counts:
            counts[count] += finished(chained)["counts"][count]
    assert all(counts.values())


def shipped_like(kind: str, monkeypatch, *, is_tied: bool):
    """A target, and a draft with half of its vocabulary, as they would be on a GPU."""
    monkeypatch.setattr(static_loading, "STATIC_ON", ("cpu",))
    module = (
        bigram_target(tie_word_embeddings=is_tied)
        if kind == "draft_head"
        else build_model("llama", tie_word_embeddings=is_tied)
    )
    make = {"draft_head": bigram_head, "draft_model": model_draft}[kind]
    target = static_of(module)
    draft = open_draft(make(module, some_vocab_ids(300)), target, "float32")
    draft.drafts_in_chains = True
    return target, draft


@pytest.mark.parametrize("is_tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", ["draft_head", "draft_model"])
def test_a_draft_of_a_part_of_the_vocabulary_drafts_the_same_in_chains(kind, settings, is_tied, monkeypatch):
    target, draft = shipped_like(kind, monkeypatch, is_tied=is_tied)
    accepted = 0
    for prompt_ids in PROMPTS:
        chained, looped = both_ways(monkeypatch, target, draft, kind, prompt_ids, num_draft_tokens=4, **settings)
        assert_same(without_times(chained), without_times(looped))
        accepted += finished(chained)["counts"]["accepted"]
    assert accepted


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_end_tokens_are_heeded(settings, monkeypatch):
    target, draft = static_target(), static_draft()
    said = new_ids(run_events(target, PROMPTS[0], max_new_tokens=24))
    for eos in ((said[3], said[9]), (said[2],)):
        chained, looped = both_ways(
            monkeypatch, target, draft, "draft_model", PROMPTS[0], num_draft_tokens=6, eos_token_ids=eos, **settings
        )
        assert_same(without_times(chained), without_times(looped))


@pytest.mark.parametrize(
    "settings",
    [
        {"repetition_penalty": 1.3},
        {"num_draft_tokens": "auto", "draft_threshold": 0.2},
        {"suppress_token_ids": (5,)},
        {"min_new_tokens": 3, "eos_token_ids": (9,)},
    ],
    ids=["penalty", "auto", "suppressed", "least length"],
)
def test_what_needs_python_on_the_way_goes_token_by_token(settings, monkeypatch):
    target, draft = static_target(), static_draft()
    monkeypatch.setattr(chain, "draw_chain", lambda *args: pytest.fail("this draft cannot be made at once"))
    monkeypatch.setattr("specviz.drafters.draft_model.draw_chain", chain.draw_chain)
    run_events(target, PROMPTS[0], draft=draft, drafter_kind="draft_model", max_new_tokens=12, **settings)


def test_the_context_of_the_draft_ends_a_chain(monkeypatch):
    target, draft = static_target(), static_of(build_model("llama", max_positions=40))
    long_prompt = [5, 9, 7, 4] * 8
    chained, looped = both_ways(monkeypatch, target, draft, "draft_model", long_prompt, num_draft_tokens=4)
    assert_same(without_times(looped)[-3:], without_times(chained)[-3:])
    assert new_ids(chained) == new_ids(looped)


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_logits_that_are_not_numbers_fail_the_run(settings):
    draft = static_of(build_model("llama"))
    draft.weights.final_norm[3] = torch.nan
    with pytest.raises(RunFailed, match="not numbers"):
        run_events(
            static_target(),
            PROMPTS[0],
            draft=draft,
            drafter_kind="draft_model",
            num_draft_tokens=3,
            max_new_tokens=9,
            **settings,
        )


# --- as on a GPU: tensors without numbers refuse whatever waits for one, and to mix with others ----


def fake_static(num_layers: int, vocab_size: int = 64) -> StaticModel:
    """A model on a device that holds shapes only."""
    hidden, heads, kv_heads, head_dim, wide = 32, 4, 2, 8, 48

    def weight(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, device="meta")

    layers = tuple(
        StaticLayer(
            weight(hidden),
            weight((heads + 2 * kv_heads) * head_dim, hidden),
            weight(hidden, heads * head_dim),
            weight(hidden),
            weight(2 * wide, hidden),
            weight(hidden, wide),
        )
        for _ in range(num_layers)
    )
    tables = weight(128, head_dim // 2), weight(128, head_dim // 2)
    embedding = weight(vocab_size, hidden)
    return StaticModel(
        StaticWeights(embedding, layers, weight(hidden), embedding, *tables, 1e-5, heads, kv_heads, head_dim),
        "a model without numbers",
        None,
    )


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_nothing_waits_for_the_device_before_the_copy_of_a_round(settings):
    target, draft = fake_static(3), fake_static(1)
    run = run_context(target, num_prompt_tokens=5, **settings)
    session = DraftModel(draft).open(run)
    committed = [5, 9, 7, 4, 30]
    cache = target.new_cache()
    target.forward(committed[:-1], cache, num_logits=0)
    session.prefill(committed, {})
    for index in (1, 2):
        drafted = session.chain(committed, 4, index)
        rows = drafted.with_logits(target.forward(drafted.after(committed[-1]), cache).logits)
        assert rows.device.type == "meta"
        assert rows.shape == (1 + 5 + 4 + (4 if "top_k" in settings else 0), 64)
        cache.truncate(len(committed))
        committed.append(8)
        session.commit(committed, {})
    for would_wait in (lambda: rows[0].tolist(), lambda: bool(rows[0, 0] > 0), lambda: chain.to_host(rows)):
        with pytest.raises((RuntimeError, NotImplementedError)):
            would_wait()


@pytest.mark.parametrize("vocab_ids", [None, torch.tensor([3, 9, 40])], ids=["whole", "cut"])
def test_what_an_early_exit_says_stays_on_the_device(vocab_ids):
    target = fake_static(3)
    session = EarlyExit(target, PlainHeads(target, vocab_ids), 1).open(run_context(target, num_prompt_tokens=5))
    said = session._logits_after([5, 9, 7, 4, 30])
    assert (said.device.type, said.shape) == ("meta", (1, 64))
    verified = session.verify([30, 8])
    assert (verified.logits.device.type, verified.logits.shape) == ("meta", (2, 64))


def test_a_pass_layer_by_layer_waits_for_nothing_either():
    model = fake_static(3)
    states = model.forward_by_layer([4, 5], model.new_cache()).states
    assert model.read_out(states).shape == (2, 64)
    assert states.device.type == "meta"
