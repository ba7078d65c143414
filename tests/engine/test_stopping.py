"""What ends a run, which reason comes first, and what a reader is shown of the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specviz.engine.stopping import GeneratedText, StopRules

EOS = 9


def rules(max_new_tokens: int = 100, context_length: int | None = None) -> StopRules:
    return StopRules(frozenset({EOS, 10}), max_new_tokens, context_length)


@pytest.mark.parametrize(
    ("token_id", "is_stop", "num_new", "length", "reason"),
    [
        (1, False, 3, 10, None),
        (EOS, False, 3, 10, "eos"),
        (10, False, 3, 10, "eos"),
        (1, True, 3, 10, "stop"),
        (1, False, 5, 10, "length"),
        (1, False, 3, 20, "context"),
        (EOS, True, 5, 20, "eos"),
        (1, True, 5, 20, "stop"),
        (1, False, 5, 20, "length"),
    ],
)
def test_the_reason_is_the_first_of_eos_stop_length_context(token_id, is_stop, num_new, length, reason):
    assert rules(5, 20).reason_after(token_id, is_stop, num_new, length) == reason


def test_a_target_without_a_known_context_never_fills_it():
    assert rules().reason_after(1, False, 3, 10**9) is None


@pytest.mark.parametrize(
    ("wanted", "num_new", "length", "longest", "why"),
    [
        (4, 0, 10, 4, None),
        (4, 95, 10, 4, None),
        (4, 96, 10, 3, "budget"),
        (4, 99, 10, 0, "budget"),
        (4, 0, 15, 4, None),
        (4, 0, 16, 3, "context"),
        (4, 0, 19, 0, "context"),
        (0, 99, 19, 0, None),
    ],
)
def test_a_draft_leaves_room_for_the_targets_own_token(wanted, num_new, length, longest, why):
    assert rules(100, 20).longest_draft(wanted, num_new, length) == (longest, why)


# --- stop strings -----------------------------------------------------------------------------


def feed(stops: list[str], pieces: list[str]) -> tuple[GeneratedText, int | None]:
    """The text after each piece, up to the one that completes a stop string, and which one that was."""
    text = GeneratedText(stops)
    for index, piece in enumerate(pieces):
        if text.append({"id": 0, "text": piece}):
            return text, index
    return text, None


@pytest.mark.parametrize(
    ("stops", "pieces", "stopped_at", "output"),
    [
        (["END"], ["a", " E", "N", "D", "x"], 3, "a "),
        (["END"], ["aENDb"], 0, "a"),
        (["END"], ["EN", "EN", "D"], 2, "EN"),
        (["aab"], ["a", "a", "a", "b"], 3, "a"),
        (["x", "abx"], ["a", "b", "x"], 2, ""),
        (["b", "abc"], ["abc"], 0, ""),
        (["never"], ["a", "b"], None, "ab"),
        ([], ["a", "b"], None, "ab"),
        (["\n\n"], ["one\n", "\ntwo"], 1, "one"),
        (["한"], ["", "", "한국"], 2, ""),
    ],
)
def test_a_stop_string_ends_the_text_where_it_begins(stops, pieces, stopped_at, output):
    text, index = feed(stops, pieces)
    assert index == stopped_at
    assert text.output_text == output


def test_the_raw_text_keeps_the_stop_string():
    text, _ = feed(["END"], ["a", "END"])
    assert text.text == "aEND"


def test_an_end_that_may_begin_a_stop_string_is_held_back():
    text, _ = feed(["STOP"], ["hello ST"])
    assert text.streamable_text == "hello "
    text.append({"id": 0, "text": "UFF"})
    assert text.streamable_text == "hello STUFF"


def test_special_tokens_are_not_in_the_output():
    text = GeneratedText([])
    text.append({"id": 0, "text": "hi"})
    text.append({"id": 1, "text": "</s>", "special": True})
    text.append({"id": 0, "text": "there"})
    assert text.output_text == text.streamable_text == "hithere"
    assert text.text == "hi</s>there"


def test_a_special_token_can_be_a_stop_string():
    text = GeneratedText(["<|im_end|>"])
    text.append({"id": 0, "text": "hi"})
    assert text.append({"id": 1, "text": "<|im_end|>", "special": True})
    assert text.output_text == "hi"


letters = st.text("ab", max_size=3)


@given(st.lists(st.text("ab", min_size=1, max_size=3), max_size=3), st.lists(letters, max_size=10))
def test_streamed_text_never_has_to_be_taken_back(stops, pieces):
    text = GeneratedText(stops)
    shown = ""
    for piece in pieces:
        stopped = text.append({"id": 0, "text": piece})
        assert text.streamable_text.startswith(shown)
        shown = text.streamable_text
        if stopped:
            break
    assert text.output_text.startswith(shown)


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3), st.lists(letters, max_size=10))
def test_a_run_stops_at_the_first_piece_whose_text_holds_a_stop_string(stops, pieces):
    text, index = feed(stops, pieces)
    so_far = ["".join(pieces[: n + 1]) for n in range(len(pieces))]
    holds_one = [any(stop in whole for stop in stops) for whole in so_far]
    assert index == (holds_one.index(True) if True in holds_one else None)
    if index is not None:
        assert text.output_text == so_far[index][: min(so_far[index].find(s) for s in stops if s in so_far[index])]


def test_a_stop_string_counts_as_the_reader_sees_it():
    text = GeneratedText(["a vu"])
    pieces = [("dé", False), ("Pa", False), ("<s>", True), (" v", False), ("u!", False)]
    stopped = [text.append({"id": i, "text": piece, "special": special}) for i, (piece, special) in enumerate(pieces)]
    assert stopped == [False, False, False, False, True]
    assert text.output_text == "déP"
    assert text.text == "déPa<s> vu!"
