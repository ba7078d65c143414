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

    A stop string is looked for in generated text only, across tokens and rounds, both in the text that a
    reader sees and in the text with its special tokens written out.
    """

    def __init__(self, stop_strings: Sequence[str]) -> None:
        self._stop_strings = tuple(stop_strings)
        self._longest = max((len(stop) for stop in stop_strings), default=0)
        self._special_spans: list[tuple[int, int]] = []
        self._stopped_at: int | None = None  # in the shown text
        self.text = ""
        self._shown = ""

    def append(self, token: Token) -> bool:
        """Add a committed token; True when it completes a stop string."""
        before, shown_before = len(self.text), len(self._shown)
        self.text += token["text"]
        if token.get("special"):
            self._special_spans.append((before, len(self.text)))
        else:
            self._shown += token["text"]
        starts = [self._num_shown_before(start) for start in self._starts(self.text, before)]
        starts += self._starts(self._shown, shown_before)
        if starts:
            self._stopped_at = min(starts)
        return bool(starts)

    @property
    def output_text(self) -> str:
        """The text for a reader: without special tokens, and from the stop string on nothing."""
        return self._shown if self._stopped_at is None else self._shown[: self._stopped_at]

    @property
    def streamable_text(self) -> str:
        """`output_text` as far as it is certain: an end that may begin a stop string is held back."""
        if self._stopped_at is not None:
            return self.output_text
        held_from = self._num_shown_before(len(self.text) - self._num_held(self.text))
        return self._shown[: min(held_from, len(self._shown) - self._num_held(self._shown))]

    def _starts(self, text: str, length_before: int) -> list[int]:
        """Where stop strings begin that end in what was just added."""
        search_from = max(0, length_before - self._longest + 1)
        starts = [text.find(stop, search_from) for stop in self._stop_strings] if len(text) > length_before else []
        return [start for start in starts if start >= 0]

    def _num_held(self, text: str) -> int:
        """How many characters at the end may begin a stop string."""
        for num_held in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-num_held:]
            if any(stop.startswith(tail) for stop in self._stop_strings):
                return num_held
        return 0

    def _num_shown_before(self, end: int) -> int:
        """How many of the first `end` characters of `text` a reader sees."""
        hidden = sum(
            min(span_end, end) - span_start for span_start, span_end in self._special_spans if span_start < end
        )
        return end - hidden
