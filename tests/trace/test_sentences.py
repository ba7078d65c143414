"""The plain-words sentences, one for each kind of round and of comparison."""

from __future__ import annotations

import pytest

from specviz.trace.sentences import draft_stop_note, identity_sentence, num_rolled_back, round_sentence
from tests.trace.sample_traces import FIRST_DIFFERENCE, TraceBuilder, all_traces


def sentence(sampled=False, **round_fields) -> str:
    return round_sentence(TraceBuilder(sampled=sampled).round(**round_fields).events[-1])


def test_a_greedy_correction():
    assert sentence(accepted=[" a", " b", " c"], rejected=" fox", discarded=[" x"], extra=" dog") == (
        "3 of 5 accepted; the target would not say ' fox'; it said ' dog'; rolled back 2; kept 4 tokens for one target pass."
    )


def test_a_sampled_correction_tells_the_throw_and_does_not_claim_that_the_target_never_says_it():
    assert sentence(sampled=True, rejected=" fox", extra=" dog") == (
        "0 of 1 accepted; ' fox' lost its throw (0.875, and it needed less than 0.500); "
        "the target drew ' dog' instead; rolled back 1; kept 1 token for one target pass."
    )


def test_a_bonus():
    assert sentence(accepted=[" a", " b"], extra=" c") == (
        "2 of 2 accepted; the target added ' c' as a bonus; kept 3 tokens for one target pass."
    )


@pytest.mark.parametrize(
    ("draft_stop", "why"),
    [
        (None, ""),
        ("no_match", ", as the text held no earlier match"),
        ("context", ", as the context had no room for a draft"),
    ],
)
def test_nothing_drafted(draft_stop, why):
    assert sentence(extra=" a", draft_stop=draft_stop) == (
        f"Nothing was drafted{why}; the target said ' a'; kept 1 token for one target pass."
    )


def test_a_stop_inside_the_accepted_part():
    assert sentence(accepted=[" a", "<|im_end|>"], cut=[" x"]) == (
        "2 of 3 accepted; generation stopped at '<|im_end|>'; 1 drafted after it was never judged; "
        "rolled back 1; kept 2 tokens for one target pass."
    )
    assert sentence(accepted=[" a"]) == "1 of 1 accepted; generation stopped at ' a'; kept 1 token for one target pass."


def test_tokens_without_text_are_named_by_what_they_are():
    assert "it said the bytes f09f;" in sentence(rejected=" a", extra="", bytes="f09f")
    served = next(event for event in all_traces()["served"] if event["type"] == "round")
    assert "would not say a token" in round_sentence(served)


def test_texts_in_sentences_cannot_act():
    assert "'␛[2J'" in sentence(rejected="\x1b[2J", extra="\n")
    assert len(sentence(rejected="x" * 5000, extra="y")) < 300


def test_rolled_back_counts_drafted_tokens_that_were_withdrawn():
    build = TraceBuilder().round([" a"], " b", [" c"], extra=" d").round([" a"], cut=[" b", " c"])
    assert [num_rolled_back(event) for event in build.events[2:]] == [2, 2]


def test_a_short_draft_is_explained_apart():
    round_event = TraceBuilder().round([" a"], extra=" b", draft_stop="confidence").events[-1]
    assert draft_stop_note(round_event) == "the drafter was no longer sure enough"
    assert draft_stop_note(TraceBuilder().round([" a"], extra=" b").events[-1]) is None


def test_identity_claims_only_what_was_checked():
    plain = {"type": "identity", "against": "plain"}
    assert "not checked" in identity_sentence(None)
    assert identity_sentence({**plain, "identical": True}).endswith("yes, checked in this run.")
    assert "not comparable (sampled)" in identity_sentence({**plain, "identical": None, "why": "sampled"})
    told = identity_sentence({**plain, "identical": False, "first_difference": FIRST_DIFFERENCE})
    assert "no; the first difference is at new token 3" in told
    assert "says ' cat' and this run said nothing more" in told and "0.0012 apart in bfloat16" in told
