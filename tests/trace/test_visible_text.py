"""Text that strangers wrote, made harmless and visible."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from specviz.trace.visible_text import encodable_text, shortened, visible_text

ACTING = ("Cc", "Cs", "Cf", "Zl", "Zp")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("a\nb\tc\r", "a␊b␉c␍"),
        ("\x00\x07\x7f", "␀␇␡"),
        ("\x9b31m", "\\u009b31m"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("\u200b\ufeff\u2028", "\\u200b\\ufeff\\u2028"),
        ("\ud800", "\\ud800"),
        ("naïve 👩\u200d🚀 한국어", "naïve 👩\u200d🚀 한국어"),
        ("[bold]<b>{{x}}`", "[bold]<b>{{x}}`"),
    ],
)
def test_what_acts_is_drawn_and_what_shows_is_kept(text, shown):
    assert visible_text(text) == shown


def test_spaces_and_line_ends_on_request():
    assert visible_text(" a b ", spaces=True) == "·a·b·"
    assert visible_text("a\n\tb\x1b", newlines=False) == "a\n\tb␛"


def test_no_character_of_unicode_acts_on_a_terminal():
    acting = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ACTING]
    shown = visible_text("".join(acting))
    assert len(acting) > 2000
    assert sorted({c for c in shown if unicodedata.category(c) in ACTING}) == ["\u200c", "\u200d"]


def test_encodable_text_fits_any_encoding():
    assert encodable_text("✓ é", "ascii") == "\\u2713 \\xe9"
    assert encodable_text("✓ é", "latin-1") == "\\u2713 é"
    assert encodable_text("✓ é", None) == "\\u2713 \\xe9"


def test_shortened_says_how_long_it_was():
    assert shortened("abc", 3) == "abc"
    assert shortened("x" * 10, 3) == "xxx… (10 characters)"
