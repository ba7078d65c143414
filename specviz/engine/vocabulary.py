"""A tokenizer as the engine and the screen need it: its ids, the bytes and texts behind them, its chat template."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from specviz.errors import BadRequest
from specviz.events import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\ufffd"
# Whether a text is too long is said in a sentence of ours (`check_request`), not in a warning of transformers'.
QUIET = {"verbose": False}
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

    def encode(
        self, text: str, *, raw: bool, system: str | None = None, history: Sequence[Message] = ()
    ) -> tuple[str, list[int]]:
        """The text as the target reads it, and its ids; at least one id.

        Args:
            raw: no chat template (a base model without one is always raw).
            history: the earlier turns of the conversation.

        Raises:
            BadRequest: nothing to read, or text that is not text (lone surrogates).
        """
        _refuse_non_text("The prompt", text)
        _refuse_non_text("The system message", system or "")
        for message in history:
            _refuse_non_text("An earlier turn", message["content"])
        is_raw = raw or not self.tokenizer.chat_template
        if is_raw and (system or history):
            raise BadRequest(
                "A system message and earlier turns need a chat template, and this prompt is given without one: "
                "leave them out, or take a chat model and no raw prompt."
            )
        if is_raw:
            templated = text
            ids = list(self.tokenizer(text, **QUIET).input_ids)
        elif not text.strip():
            raise BadRequest("The prompt is empty: type something.")
        else:
            templated = self._apply_template([*_system(system), *history, {"role": "user", "content": text}])
            ids = list(self.tokenizer(templated, add_special_tokens=False, **QUIET).input_ids)
        if not ids and self.tokenizer.bos_token_id is not None:
            ids = [self.tokenizer.bos_token_id]
        if not ids:
            raise BadRequest(
                "The prompt is empty, and this tokenizer has no token to begin a text with: type something."
            )
        return templated, ids

    def num_earlier_tokens(self, token_ids: Sequence[int], system: str | None, history: Sequence[Message]) -> int:
        """How many of a templated conversation's first ids belong to its earlier turns (shown folded)."""
        if not history or not self.tokenizer.chat_template:
            return 0
        earlier = self._apply_template([*_system(system), *history], add_generation_prompt=False)
        ids = self.tokenizer(earlier, add_special_tokens=False, **QUIET).input_ids
        pairs = enumerate(zip(ids, token_ids, strict=False))
        return next((i for i, (one, other) in pairs if one != other), min(len(ids), len(token_ids)))

    def _apply_template(self, messages: list[Message], add_generation_prompt: bool = True) -> str:
        try:
            return self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        except Exception as error:  # templates are programs of the model's, and raise what they like
            roles = ", ".join(message["role"] for message in messages)
            raise BadRequest(
                f"The model's chat template does not take the messages {roles} ({error}): "
                "leave the system message out, or give the prompt raw."
            ) from error


def _refuse_non_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise BadRequest(f"{what} is {text!r}, which is no text: give a string.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = text[error.start]
        raise BadRequest(f"{what} has the lone surrogate {surrogate!r} at position {error.start}: remove it.") from None


def _system(text: str | None) -> list[Message]:
    return [{"role": "system", "content": text}] if text else []


def _is_whole_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
