"""Prompt lookup first, a draft of its own where the text has nothing to copy.

A lookup costs nothing and is right for several tokens on end where a text repeats; a draft model or head has
something to say everywhere else. Joined in this way in, for example, SAM-Decoding (Hu et al. 2024, arXiv 2411.10666).
Which of the two drafts a round is decided by the committed text alone (DESIGN invariant 4), and all tokens of a draft
come from the same one.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from specviz.drafters.base import DraftedToken, Drafter, DraftSession, DraftStop, RunContext, draft_model_of
from specviz.drafters.prompt_lookup import PromptLookup, PromptLookupSession
from specviz.errors import BadRequest

if TYPE_CHECKING:
    from specviz.engine.draft_head import DraftHeadModel
    from specviz.engine.language_model import KVCache, LanguageModel

MOST_WITH_AUTO = 4  # tokens looked up where k is auto: a lookup has no confidence that could say when to stop


@dataclass(frozen=True, slots=True)
class LookupFirst:
    """`other`, a draft model or head, with a lookup before it."""

    other: Drafter
    lookup: PromptLookup

    @classmethod
    def before(cls, other: Drafter, lookup: PromptLookup) -> LookupFirst:
        """Raises BadRequest for a drafter that has no model of its own."""
        if draft_model_of(other) is None:
            raise BadRequest(
                f"lookup_first is on, and drafter is {other.kind!r}: turn it off, or choose draft_head or draft_model."
            )
        return cls(other, lookup)

    @property
    def kind(self) -> str:
        return self.other.kind

    @property
    def name(self) -> str:
        return self.other.name

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return self.other.feature_layers

    @property
    def model(self) -> LanguageModel | DraftHeadModel:
        return self.other.model

    def open(self, run: RunContext) -> LookupFirstSession:
        return LookupFirstSession(self.other.open(run), self.lookup.open(run), run.confidence is not None)

    def describe(self) -> dict[str, Any]:
        return {
            **self.other.describe(),
            "lookup_first": {"max_ngram": self.lookup.max_ngram, "min_ngram": self.lookup.min_ngram},
        }


@dataclass(slots=True)
class LookupFirstSession:
    """Asks the lookup, then the other, which is told of every committed token whoever drafted it."""

    other: DraftSession
    lookup: PromptLookupSession
    is_adaptive: bool
    shared_layers: int = 0

    @property
    def cache(self) -> KVCache | None:
        return self.other.cache

    def prefill(self, prompt_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        self.lookup.prefill(prompt_ids, features)
        self.other.prefill(prompt_ids, features)

    def propose(
        self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int
    ) -> Generator[DraftedToken, None, DraftStop | None]:
        most = min(num_draft_tokens, MOST_WITH_AUTO) if self.is_adaptive else num_draft_tokens
        found = self.lookup.propose(committed_ids, most, round_index)
        drafted = 0
        while True:
            try:
                token = next(found)
            except StopIteration as end:
                stopped_by = end.value
                break
            drafted += 1
            yield replace(token, looked_up=True)
        if not drafted:
            return (yield from self.other.propose(committed_ids, num_draft_tokens, round_index))
        return stopped_by

    def commit(self, committed_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        self.lookup.commit(committed_ids, features)
        self.other.commit(committed_ids, features)
