"""From the tensors of a round to its JSON-plain event: probabilities, top lists, statuses, texts.

Reads everything, decides nothing. The tensors come to Python once a round, in few copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specviz.drafters.base import DraftedToken
from specviz.engine.tokens import TokenTexts
from specviz.engine.verify import Verdict
from specviz.engine.vocabulary import Vocabulary
from specviz.events import Event, Token, TokenStatus, TopEntry

NUM_TOP = 5


@dataclass(frozen=True, slots=True)
class TokenChances:
    """The dice of a round: one per drafted token, and the extra token's; empty and None when greedy."""

    accept_uniforms: Sequence[float]
    extra_uniform: float | None


def draft_statuses(num_drafted: int, num_accepted: int, num_kept: int) -> list[TokenStatus]:
    """The final status of every drafted token.

    Args:
        num_accepted: by the verdict. num_kept: tokens of the block (accepted + extra) before the run's end.

    >>> draft_statuses(4, 1, 2)
    ['accepted', 'rejected', 'discarded', 'discarded']
    >>> draft_statuses(4, 3, 2)   # generation stopped at the second accepted token
    ['accepted', 'accepted', 'cut', 'cut']
    """
    stopped_inside = num_kept <= num_accepted
    statuses: list[TokenStatus] = ["accepted"] * min(num_kept, num_accepted)
    if stopped_inside:
        return statuses + ["cut"] * (num_drafted - len(statuses))
    if num_accepted < num_drafted:
        statuses.append("rejected")
    return statuses + ["discarded"] * (num_drafted - len(statuses))


class RoundDescriber:
    """Describes rounds at one level of detail: "full", "light" (no top lists), "none" (ids and statuses)."""

    def __init__(self, vocabulary: Vocabulary, detail: str) -> None:
        self._vocabulary = vocabulary
        self._has_probs = detail != "none"
        self._has_tops = detail == "full"

    def drawn(self, texts: TokenTexts, draft: list[DraftedToken], index: int, t: float) -> Event:
        """A `draft_token` event for the newest of `draft`."""
        fork = texts.fork()
        newest = draft[-1]
        token: dict[str, Any] = [fork.append(drafted.token_id) for drafted in draft][-1] | _source(newest)
        if self._has_probs:
            token["draft_prob"] = None if newest.model_probs is None else float(newest.model_probs[newest.token_id])
        return {"type": "draft_token", "round": index, "index": len(draft) - 1, "t": t, "token": token}

    def describe(
        self,
        texts_before: TokenTexts,
        draft: list[DraftedToken],
        adjusted: Tensor,
        verdict: Verdict,
        chances: TokenChances,
        kept: list[Token],
    ) -> dict[str, Any]:
        """The `draft` and `extra` of a round event.

        Args:
            texts_before: the token texts as they stood before the round (used up).
            adjusted: [k + 1, vocab] the target's logits after penalties and suppression.
            kept: the committed token objects.
        """
        statuses = draft_statuses(len(draft), verdict.num_accepted, len(kept))
        num_judged = sum(status in ("accepted", "rejected") for status in statuses)
        has_extra = len(kept) > verdict.num_accepted
        num_target_rows = num_judged if statuses.count("rejected") or not has_extra else num_judged + 1
        tokens: list[dict[str, Any]] = [
            {**texts_before.append(drafted.token_id), "status": status, **_source(drafted)}
            for drafted, status in zip(draft, statuses, strict=True)
        ]
        extra = {**kept[-1], "kind": verdict.extra_kind} if has_extra else None
        if self._has_probs:
            # The row that gave the extra token: the rejected position's own, or the one after the draft.
            target_rows = adjusted[: max(num_target_rows, 1)].softmax(-1)
            self._add_target_side(tokens[:num_judged], extra, target_rows, verdict, chances)
            self._blank_target_side(tokens[num_judged:])
            self._add_draft_side(tokens, extra, draft, verdict)
        return {"draft": tokens, "extra": extra}

    def _add_target_side(
        self,
        judged: list[dict[str, Any]],
        extra: dict[str, Any] | None,
        target_rows: Tensor,
        verdict: Verdict,
        chances: TokenChances,
    ) -> None:
        shown = [*judged, *([extra] if extra else [])]
        rows = [*range(len(judged)), *([verdict.num_accepted] if extra else [])]
        probs = target_rows[rows, [token["id"] for token in shown]].tolist() if shown else []
        for token, prob in zip(shown, probs, strict=True):
            token["target_prob"] = prob
        for i, token in enumerate(judged):
            sampled = bool(verdict.accept_probs)
            token["target_prob_used"] = verdict.target_probs_used[i] if sampled else None
            token["accept_prob"] = verdict.accept_probs[i] if sampled else None
            token["u"] = chances.accept_uniforms[i] if sampled else None
        if extra:
            extra["u"] = chances.extra_uniform
        if self._has_tops and shown:
            tops = self._top_lists(target_rows)
            for token, row in zip(shown, rows, strict=True):
                token["target_top"], token["target_tail"] = tops[row]
            if extra:
                residual = [(None, None)] if verdict.residual is None else self._top_lists(verdict.residual[None])
                extra["residual_top"], extra["residual_tail"] = residual[0]

    def _blank_target_side(self, unjudged: list[dict[str, Any]]) -> None:
        names = ["target_prob", "target_prob_used", "accept_prob", "u"]
        names += ["target_top", "target_tail"] if self._has_tops else []
        for token in unjudged:
            token.update(dict.fromkeys(names))

    def _add_draft_side(
        self,
        tokens: list[dict[str, Any]],
        extra: dict[str, Any] | None,
        draft: list[DraftedToken],
        verdict: Verdict,
    ) -> None:
        has_distribution = bool(draft) and draft[0].model_probs is not None
        for token, drafted in zip(tokens, draft, strict=True):
            token["draft_prob"] = float(drafted.model_probs[drafted.token_id]) if has_distribution else None
            token["draft_prob_used"] = None if drafted.probs is None else float(drafted.probs[drafted.token_id])
        if extra and extra["kind"] == "correction" and has_distribution:
            extra["draft_prob"] = float(draft[verdict.num_accepted].model_probs[extra["id"]])
        if self._has_tops and draft:
            tops = [(None, None)] * len(draft)
            if has_distribution:
                tops = self._top_lists(torch.stack([drafted.model_probs for drafted in draft]))
            for token, (top, tail) in zip(tokens, tops, strict=True):
                token["draft_top"], token["draft_tail"] = top, tail

    def _top_lists(self, probs: Tensor) -> list[tuple[list[TopEntry], float]]:
        """For each row of [n, vocab]: the most probable tokens, and the mass of all others."""
        values, ids = probs.topk(min(NUM_TOP, probs.shape[-1]), dim=-1)
        return [
            (
                [[i, self._vocabulary.lone_text(i), p] for i, p in zip(row_ids, row, strict=True) if p > 0],
                max(0.0, 1.0 - sum(row)),
            )
            for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
        ]


def _source(drafted: DraftedToken) -> dict[str, Any]:
    return {"looked_up": True} if drafted.looked_up else {}
