"""Greedy speculative decoding equals plain decoding, and equals transformers' own `generate`, id for id.

Every drafter, k of 1 to 8 and adaptive, in fp32, on a tiny model of every family, over prompts of every kind.
"""

from __future__ import annotations

from functools import cache

import pytest

from specviz.engine.hf_model import TransformersModel
from tests.engine.runs import (
    DRAFTING,
    byte_vocabulary,
    finished,
    generate_ids,
    new_ids,
    rounds,
    run_events,
    tiny_draft,
    tiny_target,
)
from tests.tiny_models import FAMILIES, MAX_POSITIONS, build_model, tiny_model
from tests.tiny_tokenizers import HARD_TEXT

MOST_NEW, FEW_NEW = 18, 5  # one prompt of each kind is answered at length; the others keep the many runs quick
EVERY_K = (1, 2, 3, 4, 5, 6, 7, 8, "auto")
CHAT_PROMPTS = ("hello world", "what is the capital of France?", "naïve 한국어?")
RAW_PROMPTS = (
    "The quick brown fox jumps over",
    "the there then they them",
    "def add(a, b):\n    return",
    "for i in range(10):\n    print(",
    HARD_TEXT,
    "👩‍🚀👩‍🚀👩‍🚀",
    "naïve café déjà vu",
    "한국어 한국어 한국어",
    "one two three one two three one two",
    "ababababababab",
    "hello hello hello hello hello",
    "a",
    "\n",
)

LONG_ANSWERS = (
    "chat: hello world",
    f"raw: {RAW_PROMPTS[2]!r}",
    f"raw: {HARD_TEXT!r}",
    "raw: 'hello hello hello hello hello'",
    "raw: 'a'",
    "12 from the end",
)


@cache
def prompts() -> dict[str, list[int]]:
    """Chat, prose, code, unicode, repetitive, one token, and up to the context's end."""
    vocabulary = byte_vocabulary()
    encoded = {f"chat: {text}": vocabulary.encode(text, raw=False)[1] for text in CHAT_PROMPTS}
    encoded |= {f"raw: {text!r}": vocabulary.encode(text, raw=True)[1] for text in RAW_PROMPTS}
    long_text = vocabulary.encode("The dog sleeps on and on. " * 40, raw=True)[1]
    encoded |= {f"{room} from the end": long_text[: MAX_POSITIONS - room] for room in (1, 2, 5, 12)}
    assert len(encoded) >= 20
    assert set(LONG_ANSWERS) <= set(encoded)
    assert sum(len(ids) == 1 for ids in encoded.values()) == 2
    return encoded


def num_new(name: str) -> int:
    return MOST_NEW if name in LONG_ANSWERS else FEW_NEW


@cache
def reference(family: str) -> dict[str, list[int]]:
    """What transformers' `generate` says after each prompt, to the end of the context."""
    return {
        name: generate_ids(tiny_model(family), ids, min(num_new(name), MAX_POSITIONS - len(ids)))
        for name, ids in prompts().items()
    }


def speculate(family: str, name: str, kind: str, k: int | str, **settings):
    return run_events(
        tiny_target(family),
        prompts()[name],
        draft=tiny_draft(family),
        drafter_kind=kind,
        num_draft_tokens=k,
        max_draft_tokens=8,
        draft_threshold=0.05,
        exit_layer=2,
        min_ngram=1,
        max_new_tokens=num_new(name),
        **settings,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_decoding_equals_generate(family):
    for name, ids in prompts().items():
        events = run_events(tiny_target(family), ids, max_new_tokens=num_new(name))
        assert new_ids(events) == reference(family)[name], name


@pytest.mark.parametrize("family", FAMILIES)
def test_the_references_are_worth_comparing_with(family):
    texts = list(reference(family).values())
    assert len({tuple(text) for text in texts}) >= 15, "different prompts are answered differently"
    long_ones = [text for text in texts if len(text) == MOST_NEW]
    assert len(long_ones) == len(LONG_ANSWERS) - 1, "one of them meets the context's end"
    assert sum(len(set(text)) for text in long_ones) / len(long_ones) > MOST_NEW / 3, "the text wanders"


@pytest.mark.parametrize("k", EVERY_K)
@pytest.mark.parametrize("kind", DRAFTING)
@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_equals_generate(family, kind, k):
    counts = dict.fromkeys(("accepted", "rejected", "bonuses", "drafted"), 0)
    for name in prompts():
        events = speculate(family, name, kind, k)
        assert new_ids(events) == reference(family)[name], name
        for count in counts:
            counts[count] += finished(events)["counts"][count]
    assert counts["accepted"], "a matrix without an acceptance proves nothing"
    assert counts["rejected"], "a matrix without a rejection proves nothing"


@pytest.mark.parametrize("k", EVERY_K)
@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_that_looks_up_first_equals_generate(family, k):
    sources = {True: 0, False: 0}
    for name in prompts():
        events = speculate(family, name, "draft_model", k, lookup_first=True)
        assert new_ids(events) == reference(family)[name], name
        for event in rounds(events):
            if event["draft"]:
                sources[event["draft"][0].get("looked_up", False)] += 1
    assert all(sources.values()), "a matrix in which only one of the two drafts proves nothing"


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_copy_of_the_target_has_every_token_accepted(k):
    target = TransformersModel(build_model("llama", max_positions=256), "roomy llama")
    events = run_events(
        target, [1, 10, 20], draft=target, drafter_kind="draft_model", num_draft_tokens=k, max_new_tokens=200
    )
    counts = finished(events)["counts"]
    assert counts["accepted"] == counts["drafted"] > 0
    assert counts["rejected"] == counts["corrections"] == 0
    assert counts["rounds"] == -(-200 // (k + 1)), "k + 1 tokens a round"
    assert len(new_ids(events)) == 200
