"""Token texts: which characters each token completes, in its place.

Decoding tokens one by one breaks characters that span tokens (emoji, Hangul) and loses the leading
space of SentencePiece pieces. So a token's text is what the decode of the whole grows by when the
token is appended; while a character is unfinished the token's text is empty, and its bytes are kept.
The texts, joined, are the decode of the whole, less the dangling bytes of a last unfinished character.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from specviz.errors import BadRequest
from specviz.events import PromptInfo, Token

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\ufffd"
# Finished characters that a decode starts before the place of interest, so that rules of the
# tokenizer that look at the beginning of a text (a stripped first space) do not apply there.
CONTEXT_GROUPS = 4
# Of a long sequence so far, as much as decides how its next tokens read.
TAIL_TOKENS = 64
_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """What the engine and the screen ask of a tokenizer; wraps one of transformers', shared by runs."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self._lone_texts: dict[int, str] = {}
        self._parts: dict[int, str | None] = {}

    @cached_property
    def size(self) -> int:
        """One more than the largest id: ids from here on are padding of a model's head."""
        return max(self.tokenizer.get_vocab().values()) + 1

    @cached_property
    def special_ids(self) -> frozenset[int]:
        added = self.tokenizer.added_tokens_decoder
        return frozenset(self.tokenizer.all_special_ids) | {i for i, token in added.items() if token.special}

    @cached_property
    def _byte_of_char(self) -> dict[str, int] | None:
        """The printable stand-in -> byte map of byte-level BPE; None for other kinds of tokenizer."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None or "ByteLevel" not in str(backend.decoder):
            return None
        # Radford et al. 2019 (GPT-2): printable bytes stand for themselves, the others for 256, 257, ...
        printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
        others = [byte for byte in range(256) if byte not in printable]
        return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special tokens written out; ids that the tokenizer lacks count as nothing.

        A run of single-byte tokens is decoded here: tokenizers do it as a whole, and one bad byte turns
        all characters of the run into U+FFFD.
        """
        known = [token_id for token_id in token_ids if token_id < self.size]
        if self.byte_fallback_ids.isdisjoint(known):
            return self._native_decode(known)
        text = ""
        for is_byte_run, run in itertools.groupby(known, self.byte_fallback_ids.__contains__):
            ids = list(run)
            if is_byte_run:
                text += b"".join(self.raw_bytes(token_id) for token_id in ids).decode(errors="replace")
            else:
                text += self._decode_inside(ids) if text else self._native_decode(ids)
        return text

    def _native_decode(self, token_ids: list[int]) -> str:
        return self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _decode_inside(self, token_ids: list[int]) -> str:
        """The text of ids that other text stands before: a first SentencePiece piece keeps its space."""
        anchor = self._anchor_id
        return self._native_decode([anchor, *token_ids]).removeprefix(self._native_decode([anchor]))

    def lone_text(self, token_id: int) -> str:
        """The text of an id on its own, for lists of alternatives (a part of a character shows as U+FFFD)."""
        text = self._lone_texts.get(token_id)
        if text is None:
            text = REPLACEMENT if token_id in self.byte_fallback_ids else self._decode_inside([token_id])
            self._lone_texts[token_id] = text
        return text

    @cached_property
    def _anchor_id(self) -> int:
        plain = (i for i in self.tokenizer("a", add_special_tokens=False).input_ids if i not in self.special_ids)
        return next(plain, 0)

    @cached_property
    def byte_fallback_ids(self) -> frozenset[int]:
        """The single bytes of a SentencePiece-like vocabulary, written <0x0A>."""
        return frozenset(i for piece, i in self.tokenizer.get_vocab().items() if _BYTE_FALLBACK.fullmatch(piece))

    def raw_bytes(self, token_id: int) -> bytes | None:
        """The bytes that a token stands for, where the tokenizer works on bytes; else None."""
        if token_id in self.special_ids or token_id >= self.size:
            return None
        piece = self.tokenizer.convert_ids_to_tokens(token_id) or ""
        if match := _BYTE_FALLBACK.fullmatch(piece):
            return bytes([int(match[1], 16)])
        byte_of_char = self._byte_of_char
        if byte_of_char is None or any(char not in byte_of_char for char in piece):
            return None
        return bytes(byte_of_char[char] for char in piece)

    def part_of_character(self, token_id: int) -> str | None:
        """The bytes of a token, as hex, if they are not whole characters; else None."""
        if token_id not in self._parts:
            raw = self.raw_bytes(token_id)
            self._parts[token_id] = None if raw is None or _is_whole_text(raw) else raw.hex()
        return self._parts[token_id]

    def encode(self, text: str, *, raw: bool, system: str | None = None) -> tuple[str, list[int]]:
        """The text as the target reads it, and its ids; at least one id.

        Args:
            raw: no chat template (a base model without one is always raw).

        Raises:
            BadRequest: nothing to read, or text that is not text (lone surrogates).
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadRequest(
                f"The prompt has the lone surrogate {text[error.start]!r} at position {error.start}: remove it."
            ) from None
        if raw or not self.tokenizer.chat_template:
            templated = text
            ids = list(self.tokenizer(text).input_ids)
        else:
            messages = [{"role": "system", "content": system}] if system else []
            messages.append({"role": "user", "content": text})
            templated = self._apply_template(messages)
            ids = list(self.tokenizer(templated, add_special_tokens=False).input_ids)
        if not ids and self.tokenizer.bos_token_id is not None:
            ids = [self.tokenizer.bos_token_id]
        if not ids:
            raise BadRequest(
                "The prompt is empty, and this tokenizer has no token to begin a text with: type something."
            )
        return templated, ids

    def _apply_template(self, messages: list[dict[str, str]]) -> str:
        try:
            return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # templates are programs of the model's, and raise what they like
            roles = ", ".join(message["role"] for message in messages)
            raise BadRequest(
                f"The model's chat template does not take the messages {roles} ({error}): "
                "leave the system message out, or give the prompt raw."
            ) from error


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


def _is_whole_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


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
