"""Token texts: which characters each token completes, in its place.

Decoding tokens one by one breaks characters that span tokens (emoji, Hangul) and loses the leading
space of SentencePiece pieces. So a token's text is what the decode of the whole grows by when the
token is appended; while a character is unfinished the token's text is empty, and its bytes are kept.
The texts, joined, are the decode of the whole, less the dangling bytes of a last unfinished character.
"""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterable

from specviz.engine.vocabulary import REPLACEMENT, Vocabulary
from specviz.events import PromptInfo, Token

# Finished characters that a decode starts before the place of interest, so that rules of the
# tokenizer that look at the beginning of a text (a stripped first space) do not apply there.
CONTEXT_GROUPS = 4
# Of a long sequence so far, as much as decides how its next tokens read.
TAIL_TOKENS = 64


class TokenTexts:
    """The texts of a growing sequence of ids, token by token."""

    def __init__(self, vocabulary: Vocabulary, token_ids: Iterable[int] = ()) -> None:
        self._vocabulary = vocabulary
        # Ids that give their characters together, newest last; the start of a decode is the start of
        # such a group, never the middle of a character.
        self._groups: list[list[int]] = []
        self._groups_text = ""
        self._held: list[int] = []
        self._num_given = 0  # characters of the held ids that were given already
        for token_id in token_ids:
            self.append(token_id)

    def fork(self) -> TokenTexts:
        """A copy to try draft tokens on."""
        copy = TokenTexts(self._vocabulary)
        copy._groups, copy._groups_text = list(self._groups), self._groups_text
        copy._held, copy._num_given = list(self._held), self._num_given
        return copy

    def append(self, token_id: int) -> Token:
        """The token object of trace v1: the characters that this token completes, bytes, special."""
        token: Token = {"id": int(token_id), "text": self._completed_text(token_id)}
        if token_id in self._vocabulary.special_ids:
            token["special"] = True
        elif part := self._vocabulary.part_of_character(token_id):
            token["bytes"] = part
        return token

    def _completed_text(self, token_id: int) -> str:
        self._held.append(token_id)
        whole = self._vocabulary.decode([*itertools.chain(*self._groups), *self._held])
        start = len(self._groups_text) + self._num_given
        if whole.endswith(REPLACEMENT) and _decode_bytes(self._held_bytes())[1] > 0:
            self._num_given += len(whole) - 1 - start
            return whole[start:-1]
        self._close_group(whole)
        return whole[start:]

    def _close_group(self, whole: str) -> None:
        self._groups.append(self._held)
        self._groups_text = whole
        self._held, self._num_given = [], 0
        if len(self._groups) > 4 * CONTEXT_GROUPS:
            del self._groups[:-CONTEXT_GROUPS]
            self._groups_text = self._vocabulary.decode([*itertools.chain(*self._groups)])

    def _held_bytes(self) -> bytes:
        """The bytes at the end of the held ids, back to the last one that does not stand for bytes."""
        tail = b""
        for token_id in reversed(self._held):
            raw = self._vocabulary.raw_bytes(token_id)
            if raw is None:
                break
            tail = raw + tail
        return tail


def _decode_bytes(raw: bytes) -> tuple[str, int]:
    """The characters that `raw` finishes, and how many bytes at its end begin one more."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(raw), len(decoder.getstate()[0])


def prompt_info(vocabulary: Vocabulary, text: str, templated: str, token_ids: list[int]) -> PromptInfo:
    """The `prompt` object of trace v1."""
    texts = TokenTexts(vocabulary)
    tokens = [texts.append(token_id) for token_id in token_ids]
    info: PromptInfo = {
        "text": text,
        "templated": templated,
        "token_ids": list(token_ids),
        "pieces": [token["text"] for token in tokens],
        "reused": 0,
    }
    if special := [index for index, token in enumerate(tokens) if token.get("special")]:
        info["special"] = special
    if parts := {str(index): token["bytes"] for index, token in enumerate(tokens) if "bytes" in token}:
        info["bytes"] = parts
    return info
