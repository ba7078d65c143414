"""Prompt lookup: propose what followed the last few tokens when they stood in the text before.

Saxena 2023 (prompt-lookup-decoding). The choices made here:
- the longest suffix first, from `max_ngram` tokens down to `min_ngram`;
- of several places where it stands, the latest that is followed by as many tokens as are asked
  for (near text predicts near text), else the earliest (it is followed by the most);
- prompt and generated text are searched alike.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from specviz.config import RunSettings
from specviz.drafters.base import DraftedToken, DraftStop, RunContext
from specviz.engine.language_model import LanguageModel


@dataclass(frozen=True, slots=True)
class PromptLookup:
    """Proposes by n-gram lookup; has no model and no distribution (its drafts are one-hot)."""

    max_ngram: int = 4
    min_ngram: int = 2
    kind: str = "prompt_lookup"
    name: str = "prompt lookup"
    feature_layers: tuple[int, ...] = ()

    @classmethod
    def for_run(cls, target: LanguageModel, draft: LanguageModel | None, settings: RunSettings) -> PromptLookup:
        return cls(settings.max_ngram, settings.min_ngram)

    def open(self, run: RunContext) -> PromptLookupSession:
        return PromptLookupSession(self.max_ngram, self.min_ngram, run.eos_token_ids)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "max_ngram": self.max_ngram, "min_ngram": self.min_ngram}


@dataclass(slots=True)
class PromptLookupSession:
    """Where each n-gram of the committed text ends; grows with the text, so a proposal costs O(1) per n."""

    max_ngram: int
    min_ngram: int
    eos_token_ids: frozenset[int]
    cache: None = None
    shared_layers: int = 0
    _num_indexed: int = 0
    _ends_of: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def prefill(self, prompt_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        self._index(prompt_ids)

    def propose(
        self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int
    ) -> Generator[DraftedToken, None, DraftStop | None]:
        self._index(committed_ids)
        found = self.lookup(committed_ids, num_draft_tokens)
        for num_drafted, token_id in enumerate(found, start=1):
            yield DraftedToken(token_id)
            if token_id in self.eos_token_ids and num_drafted < num_draft_tokens:
                return "eos"
        return "no_match" if len(found) < num_draft_tokens else None

    def lookup(self, ids: Sequence[int], num_tokens: int) -> list[int]:
        """What followed the longest known suffix of `ids`, at most `num_tokens` of it.

        >>> session.lookup([7, 8, 9, 1, 7, 8], 2)   # "7 8" stood before, followed by "9 1"
        [9, 1]
        """
        for size in range(min(self.max_ngram, len(ids) - 1), self.min_ngram - 1, -1):
            ends = self._ends_of.get(tuple(ids[len(ids) - size :]), ())
            # The last occurrence is the suffix itself, and nothing follows it.
            earlier = [end for end in ends if end < len(ids)]
            if earlier:
                full = [end for end in earlier if end + num_tokens <= len(ids)]
                start = full[-1] if full else earlier[0]
                return list(ids[start : start + num_tokens])
        return []

    def commit(self, committed_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        self._index(committed_ids)

    def _index(self, ids: Sequence[int]) -> None:
        for end in range(self._num_indexed + 1, len(ids) + 1):
            for size in range(self.min_ngram, min(self.max_ngram, end) + 1):
                self._ends_of.setdefault(tuple(ids[end - size : end]), []).append(end)
        self._num_indexed = len(ids)
