"""What ends a run, and the text that a reader is shown of it.

The block of a round is walked token by token, and cut right after the token that ends the run:
nothing behind it is committed, counted as accepted, streamed or cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specviz.events import FinishReason, Token


@dataclass(frozen=True, slots=True)
class StopRules:
    """When to stop.

    Attributes:
        context_length: positions the target can hold, prompt included; None = no limit known.
    """

    eos_token_ids: frozenset[int]
    max_new_tokens: int
    context_length: int | None

    def reason_after(
        self, token_id: int, completes_stop_string: bool, num_new_tokens: int, sequence_length: int
    ) -> FinishReason | None:
        """Why the run ends after this token, or None. When several apply: eos, stop, length, context.

        Args:
            num_new_tokens, sequence_length: counted with this token.
        """
        if token_id in self.eos_token_ids:
            return "eos"
        if completes_stop_string:
            return "stop"
        if num_new_tokens >= self.max_new_tokens:
            return "length"
        if self.context_length is not None and sequence_length >= self.context_length:
            return "context"
        return None

    def longest_draft(self, num_draft_tokens: int, num_new_tokens: int, sequence_length: int) -> tuple[int, str | None]:
        """How many tokens a round may draft, and what cut the wish short ("budget", "context").

        The target adds one token of its own, so a draft leaves room for it.
        """
        longest, why = num_draft_tokens, None
        if (remaining := self.max_new_tokens - num_new_tokens - 1) < longest:
            longest, why = remaining, "budget"
        if self.context_length is not None and (room := self.context_length - sequence_length - 1) < longest:
            longest, why = room, "context"
        return max(longest, 0), why


class GeneratedText:
    """The new text of a run, searched for stop strings as it grows.

    Stop strings are looked for in the text with its special tokens written out, in generated text
    only, across tokens and rounds.
    """

    def __init__(self, stop_strings: Sequence[str]) -> None:
        self._stop_strings = tuple(stop_strings)
        self._longest = max((len(stop) for stop in stop_strings), default=0)
        self._special_spans: list[tuple[int, int]] = []
        self._stopped_at: int | None = None
        self.text = ""

    def append(self, token: Token) -> bool:
        """Add a committed token; True when it completes a stop string."""
        length_before = len(self.text)
        self.text += token["text"]
        if token.get("special"):
            self._special_spans.append((length_before, len(self.text)))
        search_from = max(0, length_before - self._longest + 1)
        starts = [self.text.find(stop, search_from) for stop in self._stop_strings]
        found = [start for start in starts if start >= 0]
        if found:
            self._stopped_at = min(found)
        return bool(found)

    @property
    def output_text(self) -> str:
        """The text for a reader: without special tokens, and from the stop string on nothing."""
        return self._without_special(len(self.text) if self._stopped_at is None else self._stopped_at)

    @property
    def streamable_text(self) -> str:
        """`output_text` as far as it is certain: an end that may begin a stop string is held back."""
        if self._stopped_at is not None:
            return self.output_text
        longest_tail = min(self._longest - 1, len(self.text))
        for num_held in range(longest_tail, 0, -1):
            tail = self.text[-num_held:]
            if any(stop.startswith(tail) for stop in self._stop_strings):
                return self._without_special(len(self.text) - num_held)
        return self.output_text

    def _without_special(self, end: int) -> str:
        parts, start = [], 0
        for span_start, span_end in self._special_spans:
            if span_start >= end:
                break
            parts.append(self.text[start:span_start])
            start = span_end
        if start < end:
            parts.append(self.text[start:end])
        return "".join(parts)
