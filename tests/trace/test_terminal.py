"""Drawing in a terminal: sign, colour and word, and nothing that acts, at any width and in any encoding."""

from __future__ import annotations

import io
import re
import unicodedata

import pytest
from rich.cells import cell_len

from specviz.trace.terminal import TraceTerminal, pauses
from tests.trace.sample_traces import FIRST_DIFFERENCE, TraceBuilder, all_traces, early_exit_trace, story

TRACES = all_traces()


def drawn(events, width=100, encoding="utf-8", incomplete=False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    terminal = TraceTerminal(file, width)
    for event in events:
        terminal.show(event)
    terminal.show_summary(events, incomplete)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize(("width", "encoding"), [(100, "utf-8"), (40, "utf-8"), (40, "ascii"), (20, "latin-1")])
def test_every_trace_is_drawn_at_every_width_and_encoding(name, width, encoding):
    text = drawn(TRACES[name], width, encoding)
    assert all(cell_len(line) <= width for line in text.split("\n"))
    assert not [c for c in text if unicodedata.category(c) == "Cc" and c != "\n"]
    assert "\u202e" not in text
    assert not any(line.endswith(" ") for line in text.split("\n"))


def test_a_round_shows_sign_word_text_and_probabilities():
    text = drawn(story().events)
    for line in (
        r"  ✓ accepted   ·the    draft 0\.62  target 0\.50",
        r"  ✗ rejected   ·fox    draft 0\.62  target 0\.50",
        r"  ~ discarded  ·jumps  draft 0\.62\s*$",
        r"  rolled back 2",
        r"  → correction ·dog    target 0\.50",
        r"  \+ bonus      ·away",
        r"  → plain      \.",
        r"  → correction \[bytes f09f\]",
        r"  KV target 2 → 8 → 6 positions, 0\.28 MB",
        r"  KV draft 2 → 7 → 6 positions",
        r"  time 41\.0 ms \(draft 10\.0 ms, verify 29\.0 ms, other 2\.0 ms\)",
        r"  3 of 5 accepted; the target would not say ' fox'; it said ' dog'",
    ):
        assert re.search(f"^{line}", text, re.MULTILINE), (line, text)
    assert "\x1b" not in text  # a pipe gets no colours


def test_a_draft_head_is_called_so_with_what_it_reads_and_takes():
    events = story().events
    events[0]["drafter"] = {
        "kind": "draft_head",
        "name": "a-head",
        "feature_layers": [8, 18, 30],
        "cut_vocab_size": 8192,
        "vocab_size": 49152,
        "precision": "int8\x1b[31m",
        "weight_bytes": 10_000_000,
    }
    text = drawn(events)
    assert "Drafter  draft head (a-head)" in text
    assert "reads the target's layers 8, 18 and 30" in text and "can say 8,192 of 49,152 tokens" in text
    assert "\x1b" not in text


def test_ascii_terminals_get_ascii_signs_and_escapes():
    text = drawn(TRACES["eos_inside_the_draft"], encoding="ascii")
    assert re.search(r"^  % cut        \.x", text, re.MULTILINE)
    assert re.search(r"^  x rejected   \.fox", text, re.MULTILINE)
    assert "2 -> 8 -> 6 positions" in text
    assert "\\ud55c" in drawn(TRACES["unicode"], encoding="ascii")


def test_the_summary_divides_in_the_open():
    text = drawn(story().finish("length").identity(True, plain_tokens_per_second=10.0).events)
    for part in (
        "9 tokens in 4 rounds",
        "10 drafted = 5 accepted, 2 rejected, 3 discarded, 0 cut",
        "alpha 0.714 = 5 accepted / 7 judged (95%",
        "draft acceptance rate 0.500 = 5 accepted / 10 drafted",
        "mean tokens per round 2.250 = 9 committed / 4 rounds",
        "mean accepted draft tokens 1.250 = 5 accepted / 4 rounds",
        "54.9 tokens/s = 9 committed / 164.0 ms of rounds (measured)",
        "5.49× plain decoding's 10.0 tokens/s: faster",
        "Identical to plain decoding: yes, checked in this run.",
        "Ended because the allowed number of new tokens was reached.",
    ):
        assert part in text


def test_slow_is_shown_as_slow_and_unknown_as_unknown():
    slow = drawn(story().finish().identity(True, plain_tokens_per_second=200.0).events)
    assert "0.27× plain decoding's 200.0 tokens/s: SLOWER" in slow
    unknown = drawn(TraceBuilder(mode="plain").finish("cancelled").events)
    assert "alpha no value = 0 accepted / 0 judged" in unknown
    assert "not checked in this run" in unknown and "plain decoding's" not in unknown


def test_an_early_exit_run_without_a_token_is_not_told_as_speculation():
    text = drawn(early_exit_trace(num_tokens=0))
    assert not re.search("drafted|acceptance|alpha", text)
    assert "draft acceptance rate" in drawn(story().finish("length").events)


def test_differences_failures_and_broken_off_traces_are_said():
    assert "first difference is at new token 3" in drawn(TRACES["different"])
    assert FIRST_DIFFERENCE["dtype"] in drawn(TRACES["different"])
    assert "The run failed: The device ran out of memory" in drawn(TRACES["failed"])
    assert "The trace is incomplete" in drawn(story().events, incomplete=True)


def test_a_throw_is_shown_when_sampled():
    assert "throw 0.875 ≥ 0.500" in drawn(TRACES["sampled"])


def test_hostile_text_is_shown_and_does_nothing():
    nasty = "\x1b]0;owned\x07\x1b[2J[red]x[/red]:smile:\r\x9b1m\u202e{{7*7}}<img src=x onerror=alert(1)>"
    events = TraceBuilder().round([nasty[:30]], nasty, extra=nasty).finish().events
    events[0]["prompt"]["text"] = events[0]["target"]["name"] = events[0]["drafter"]["name"] = nasty
    events[0]["settings"]["num_draft_tokens"] = nasty
    text = drawn([*events, {"type": "identity", "against": "plain", "identical": None, "why": nasty}], width=400)
    assert "␛]0;owned␇␛[2J[red]x[/red]:smile:␍\\u009b1m\\u202e{{7*7}}<img src=x" in text
    assert not set(text) & {"\x1b", "\x07", "\r", "\x9b", "\u202e"}


def test_very_long_texts_are_shortened_except_the_answer():
    text = drawn(TraceBuilder().round(["x" * 5000], extra="y" * 5000).finish().events)
    assert "(5000 characters)" in text and "x" * 100 not in text.split("Text\n")[0]


def test_small_probabilities_are_not_called_none_nor_large_ones_certain():
    events = TraceBuilder().round([" a", " b"], extra=" c").events
    events[-1]["draft"][0] |= {"draft_prob": 0.0001, "target_prob": 0.9999}
    events[-1]["draft"][1] |= {"draft_prob": 0.0, "target_prob": 1.0}
    text = drawn(events)
    assert "draft <0.01  target >0.99" in text and "draft 0.00  target 1.00" in text


def test_colours_come_with_a_terminal_and_go_with_no_color(monkeypatch):
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    def colours() -> bool:
        file = Terminal()
        TraceTerminal(file, 80).show(story().events[2])
        return "\x1b[3" in file.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colours()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours()


def test_pauses_keep_the_pace_and_never_hang():
    events = story().events
    waits = [seconds for _, seconds in pauses(events, speed=2.0)]
    assert waits == pytest.approx([0, 0.05, *[0.0205] * 4])
    events[-1]["t"] = 1e9
    assert [seconds for _, seconds in pauses(events, speed=0.001)][-1] == 5.0
