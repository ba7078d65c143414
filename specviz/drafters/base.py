"""The drafter protocol: what proposes tokens, and what it is told in return.

A `Drafter` is shared and unchanging; `open` gives a `DraftSession`, the private state of one run.
Adding a drafter means adding one file with a `Drafter` and one line in `specviz/drafters/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from specviz.engine.dice import Dice
    from specviz.engine.draft_head import DraftHeadModel
    from specviz.engine.language_model import KVCache, LanguageModel
    from specviz.engine.logits import LogitsPipeline

DraftStop = Literal["confidence", "eos", "context", "budget", "no_match"]


@dataclass(frozen=True, slots=True)
class DraftedToken:
    """One proposed token.

    Attributes:
        token_id: the id.
        probs: [vocab] the distribution it was really drawn from (after temperature, top-k, top-p);
            None when it was picked deterministically (argmax, lookup), which means one-hot.
        model_probs: [vocab] the drafter's own distribution after penalties and suppression, at
            temperature 1; None for a drafter without one. Only shown, never used in the test.
        looked_up: whether a lookup found it for a drafter that has something else to draft with.
    """

    token_id: int
    probs: Tensor | None = None
    model_probs: Tensor | None = None
    looked_up: bool = False


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a drafter may use of the run that opens it.

    Attributes:
        target_cache: the run's own target cache (a drafter that shares layers drafts in it).
        cache_for: a cache for a model or head of the drafter's own (it may hold the beginning of the prompt already).
        pipeline: the run's logits pipeline; the drafter applies it to its own logits.
        dice: the run's random numbers.
        eos_token_ids: a drafted end token ends the draft.
        confidence: a position after the first is drafted only while the product of the drafter's top probabilities
            (temperature 1) at those before it is at least this; None = k is fixed. It looks at distributions, never at
            the tokens drawn, so that the output keeps the target's distribution (DESIGN invariant 4).
        wants_model_probs: whether `DraftedToken.model_probs` will be shown.
        should_stop: whether the run was cancelled or its deadline is over; asked in long work.
    """

    target_cache: KVCache
    cache_for: Callable[[LanguageModel | DraftHeadModel], KVCache]
    pipeline: LogitsPipeline
    dice: Dice
    eos_token_ids: frozenset[int]
    confidence: float | None
    wants_model_probs: bool
    should_stop: Callable[[], bool]


class DraftSession(Protocol):
    """The private state of one run's drafter.

    One with `shared_layers` has already run them for most of what is to be verified, so it also has
    `verify(token_ids: Sequence[int]) -> ForwardOutput`: the target's pass over the pending token and the draft.

    One that can draft without Python also has `chain(committed_ids, num_draft_tokens, round_index) -> DraftChain | None`
    (see `chain.py`): what `propose` would yield, all at once; None where this draft needs `propose`.
    """

    shared_layers: int  # of the target's layers, those that it drafts in (counted in the target's cache)

    @property
    def cache(self) -> KVCache | None:
        """The drafter's own cache, or None (prompt lookup; early exit drafts in the target's)."""
        ...

    def prefill(self, prompt_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        """Take in the prompt, all but its last token.

        Args:
            features: layer -> [num_fed, hidden] for the positions that the target fed, the last ones before
                the prompt's last token (a kept cache of an earlier turn leaves fewer to feed: for a drafter that
                asks for features, those that its own cache lacks).
        """
        ...

    def propose(
        self, committed_ids: Sequence[int], num_draft_tokens: int, round_index: int
    ) -> Generator[DraftedToken, None, DraftStop | None]:
        """Yield up to `num_draft_tokens` tokens that may follow `committed_ids`, one as it is drawn.

        First feeds itself every committed token that it lacks. Returns (as the generator's value)
        why it proposed fewer than asked: a `DraftStop`, or None.
        """
        ...

    def commit(self, committed_ids: Sequence[int], features: dict[int, Tensor]) -> None:
        """After verification: forget everything beyond `committed_ids` (at most len - 1 positions stay).

        Args:
            features: layer -> [num_fed, hidden], the target's hidden states for the tokens that this
                round's verification fed and that stay committed (all of the block but its newest
                token, the first fed one included); empty unless `Drafter.feature_layers` asks.
        """
        ...


class Drafter(Protocol):
    """A way to propose; unchanging, shared by runs."""

    kind: str
    name: str
    feature_layers: tuple[int, ...]  # target layers whose features it wants; () for none

    def open(self, run: RunContext) -> DraftSession: ...

    def describe(self) -> dict[str, Any]:
        """The `drafter` object of a trace: kind, name, and what else there is to know (JSON-plain)."""
        ...


def draft_model_of(drafter: Drafter) -> LanguageModel | DraftHeadModel | None:
    """The model or head that a drafter runs apart from the target, if it runs one."""
    return getattr(drafter, "model", None)
