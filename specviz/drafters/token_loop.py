"""Drafting token by token from a distribution: what drafters with a model of their own have in common."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from torch import Tensor

from specviz.drafters.base import DraftedToken, DraftStop, RunContext
from specviz.engine.dice import draw
from specviz.engine.logits import argmax_rows


def draft_tokens(
    run: RunContext,
    committed_ids: Sequence[int],
    num_draft_tokens: int,
    round_index: int,
    logits_after: Callable[[list[int]], Tensor | None],
) -> Generator[DraftedToken, None, DraftStop | None]:
    """`DraftSession.propose`, given what the drafter says after a text.

    Args:
        logits_after: [1, vocab] raw logits of the token after these ids, which are those of the call before and one
            more; None where the drafter's own context has no room.
    """
    ids = list(committed_ids)
    longest = len(committed_ids) + num_draft_tokens
    standing = 1.0  # how probable the drafter holds it that the target keeps the whole draft
    while len(ids) < longest:
        logits = logits_after(ids)
        if logits is None:
            return "context"
        drafted = _choose(run, logits, ids, round_index)
        if drafted is None:
            return "confidence"
        yield drafted
        ids.append(drafted.token_id)
        if len(ids) == longest:
            break
        if drafted.token_id in run.eos_token_ids:
            return "eos"
        if run.confidence is not None:
            # DESIGN invariant 4: by the distributions along the draft, not by what was drawn from them.
            standing *= float(drafted.model_probs.max())
            if standing < run.confidence:
                return "confidence"
    return None


def _choose(run: RunContext, logits: Tensor, ids: list[int], round_index: int) -> DraftedToken | None:
    """The token after `ids`; None if the distribution there gives nothing that may come."""
    adjusted = run.pipeline.adjust_draft(logits, ids)
    if adjusted is None:
        return None
    needs_model_probs = run.wants_model_probs or run.confidence is not None
    model_probs = adjusted.softmax(-1)[0] if needs_model_probs else None
    if run.pipeline.is_greedy:
        return DraftedToken(argmax_rows(adjusted)[0], None, model_probs)
    probs = run.pipeline.distribution(adjusted)[0]
    return DraftedToken(draw(probs, run.dice.uniform(round_index, len(ids), "draft")), probs, model_probs)
