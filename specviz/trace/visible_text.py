"""Text of models and strangers, made fit to be shown: nothing in it acts, and nothing is hidden."""

from __future__ import annotations

import unicodedata

_KEPT_FORMAT_CHARACTERS = "\u200c\u200d"  # the joiners that emoji and several scripts are written with


def visible_text(text: str, *, spaces: bool = False, newlines: bool = True) -> str:
    """`text` with control characters drawn instead of sent: ESC as ␛, a line end as ␊, others as \\u202e.

    Args:
        spaces: draw a space as ·, where it must be told from nothing.
        newlines: draw line ends too; False leaves \\n and \\t to do their work.
    """
    if text.isascii() and text.isprintable() and not spaces:
        return text
    return "".join(_visible(character, spaces, newlines) for character in text)


def encodable_text(text: str, encoding: str | None) -> str:
    """`text` with what `encoding` has no bytes for written as escapes, such as \\u2713."""
    encoding = encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def shortened(text: str, longest: int) -> str:
    """The beginning of `text`, at most `longest` characters, with its length where it was cut."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text)} characters)"


def _visible(character: str, spaces: bool, newlines: bool) -> str:
    if character == " ":
        return "·" if spaces else " "
    if character in "\n\t" and not newlines:
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    category = unicodedata.category(character)
    if category in ("Cc", "Cs", "Zl", "Zp") or (category == "Cf" and character not in _KEPT_FORMAT_CHARACTERS):
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character
