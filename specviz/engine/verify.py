"""Verification: which drafted tokens stand, and which token the target puts after them.

Words: a draft token is *accepted* or *rejected* (the first that fails; those after it are
*discarded*, never judged). The *extra* token is the target's own: a *correction* at the rejected
position, a *bonus* when all were accepted, *plain* when nothing was drafted.

Pure functions; the random numbers are arguments. Leviathan et al. 2023 (arXiv 2211.17192),
Algorithm 1; their p is `target_probs`, their q is `draft_probs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from specviz.engine.dice import draw


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one verification of k drafted tokens.

    Attributes:
        num_accepted: 0..k, the length of the accepted prefix.
        extra_id: the target's own token after the accepted prefix.
        extra_kind: why there is one.
        accept_probs: for each judged token the probability it had of being accepted; empty when greedy.
        target_probs_used, draft_probs_used: for each judged token the two sides of that ratio.
        residual: [vocab] what the correction was drawn from; None unless a token was rejected by a die.
    """

    num_accepted: int
    extra_id: int
    extra_kind: Literal["correction", "bonus", "plain"]
    accept_probs: tuple[float, ...] = ()
    target_probs_used: tuple[float, ...] = ()
    draft_probs_used: tuple[float, ...] = ()
    residual: Tensor | None = None


def verify_greedy(draft_ids: Sequence[int], target_ids: Sequence[int]) -> Verdict:
    """Accept the longest prefix that the target would have chosen itself.

    Args:
        draft_ids: [k] what was drafted.
        target_ids: [k + 1] the target's argmax after the committed text, after draft_ids[:1], ...

    >>> verify_greedy([5, 9, 7], [5, 8, 7, 1])
    Verdict(num_accepted=1, extra_id=8, extra_kind='correction', ...)
    """
    assert len(target_ids) == len(draft_ids) + 1, "one target row per drafted token, and one after them"
    num_accepted = 0
    while num_accepted < len(draft_ids) and draft_ids[num_accepted] == target_ids[num_accepted]:
        num_accepted += 1
    return Verdict(num_accepted, int(target_ids[num_accepted]), _extra_kind(num_accepted, len(draft_ids)))


def verify_rejection(
    draft_ids: Sequence[int],
    draft_probs: Tensor | None,
    target_probs: Tensor,
    accept_uniforms: Sequence[float],
    extra_uniform: float,
) -> Verdict:
    """Accept each drafted token with probability min(1, target/draft); the output follows the target.

    Args:
        draft_ids: [k] what was drafted.
        draft_probs: [k, vocab] the distributions these ids were really drawn from; None for a
            deterministic drafter (one-hot at the drafted id).
        target_probs: [k + 1, vocab] the target's distributions, from the same pipeline.
        accept_uniforms: [k] dice in [0, 1) for the acceptance tests.
        extra_uniform: die in [0, 1) for the correction or the bonus.
    """
    num_drafted = len(draft_ids)
    assert target_probs.shape[0] == num_drafted + 1, "one target row per drafted token, and one after them"
    assert len(accept_uniforms) == num_drafted, "one die per drafted token"
    assert draft_probs is None or draft_probs.shape[0] == num_drafted, "one draft row per drafted token"

    rows = torch.arange(num_drafted, device=target_probs.device)
    ids = torch.tensor(draft_ids, dtype=torch.long, device=target_probs.device)
    target_side = target_probs[rows, ids].tolist()
    draft_side = [1.0] * num_drafted if draft_probs is None else draft_probs[rows, ids].tolist()

    accept_probs: list[float] = []
    num_accepted = 0
    for target_prob, draft_prob, uniform in zip(target_side, draft_side, accept_uniforms, strict=True):
        assert draft_prob > 0, "a drafted token has the probability it was drawn with"
        accept_probs.append(min(1.0, target_prob / draft_prob))
        # Strictly below, where the paper has r > p/q as the rejection: with u = 0 a token that the
        # target excludes (ratio 0) must not pass.
        if not uniform < accept_probs[-1]:
            break
        num_accepted += 1

    kind = _extra_kind(num_accepted, num_drafted)
    residual = None
    extra_probs = target_probs[num_accepted]
    if kind == "correction":
        draft_row = None if draft_probs is None else draft_probs[num_accepted]
        extra_probs = residual = residual_distribution(extra_probs, draft_row, draft_ids[num_accepted])
    num_judged = len(accept_probs)
    return Verdict(
        num_accepted,
        draw(extra_probs, extra_uniform),
        kind,
        tuple(accept_probs),
        tuple(target_side[:num_judged]),
        tuple(draft_side[:num_judged]),
        residual,
    )


def residual_distribution(target_probs: Tensor, draft_probs: Tensor | None, rejected_id: int) -> Tensor:
    """norm(max(0, target - draft)), what a correction is drawn from (Leviathan et al. section 2.3).

    Args:
        target_probs, draft_probs: [vocab]; draft_probs None = one-hot at `rejected_id`.

    Returns:
        [vocab], summing to 1. Where no mass is left (the two agree up to rounding, and the rejection
        was rounding too) the target's own distribution.
    """
    if draft_probs is None:
        residual = target_probs.clone()
        residual[rejected_id] = 0.0
    else:
        residual = (target_probs - draft_probs).clamp_min(0.0)
    mass = residual.sum()
    return torch.where(mass > 0, residual / mass, target_probs)


def _extra_kind(num_accepted: int, num_drafted: int) -> Literal["correction", "bonus", "plain"]:
    if num_drafted == 0:
        return "plain"
    return "bonus" if num_accepted == num_drafted else "correction"
