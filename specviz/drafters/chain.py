"""A draft that is made on the device from its first token to its last: nothing comes to Python until all are drawn.

The same tokens, from the same distributions and dice, as `token_loop.py` draws one by one. There each token waits for
the device twice (is the row of numbers, which token is it), here all of them once, with the logits of the target's
pass over them: a round copies from the device once. What only Python can decide on the way, a confidence that ends
the draft, a penalty on what was drafted or lists of ids that may not come, needs the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specviz.drafters.base import DraftedToken, DraftStop, RunContext
from specviz.engine.dice import searched
from specviz.engine.logits import NOT_NUMBERS
from specviz.errors import RunFailed


@dataclass(frozen=True, slots=True)
class DraftChain:
    """k drafted tokens, all on the device.

    Attributes:
        ids: [k] int64.
        adjusted: [k, vocab] the drafter's logits.
        probs: [k, vocab] what the ids were drawn from; None where they are the most probable ones.
    """

    ids: Tensor
    adjusted: Tensor
    probs: Tensor | None

    def after(self, pending_id: int) -> Tensor:
        """[k + 1]: what the target is to verify."""
        return torch.cat([self.ids.new_full((1,), pending_id), self.ids])

    def with_logits(self, logits: Tensor) -> Tensor:
        """[rows, vocab] float32 in one piece, to be copied at once; read by `from_host`.

        Args:
            logits: [k + 1, at least vocab] of the target.
        """
        num_ids, vocab_size = self.adjusted.shape
        ids = functional.pad(self.ids.float(), (0, vocab_size - num_ids))  # exact: ids are below 2^24
        rows = [ids[None], logits[:, :vocab_size].float(), self.adjusted]
        return torch.cat(rows if self.probs is None else [*rows, self.probs])

    def from_host(self, rows: Tensor, run: RunContext) -> tuple[Tensor, list[DraftedToken], DraftStop | None]:
        """The target's logits [drafted + 1, vocab], the draft as far as it goes, and why it ends before k tokens.

        Args:
            rows: of `with_logits`, on the host.

        Raises:
            RunFailed: the drafter's logits are not numbers.
        """
        k = len(self.ids)
        ids = [int(token_id) for token_id in rows[0, :k].tolist()]
        logits, adjusted, probs = rows[1 : k + 2], rows[k + 2 : 2 * k + 2], rows[2 * k + 2 :]
        model_probs = adjusted.softmax(-1) if run.wants_model_probs else None
        draft: list[DraftedToken] = []
        stopped_by: DraftStop | None = None
        for index, (token_id, top) in enumerate(zip(ids, adjusted.amax(-1).tolist(), strict=True)):
            if top == float("-inf"):  # the drafter has nothing to say
                stopped_by = "confidence"
                break
            if not abs(top) < float("inf"):
                raise RunFailed(NOT_NUMBERS)
            draft.append(
                DraftedToken(
                    token_id,
                    None if self.probs is None else probs[index],
                    None if model_probs is None else model_probs[index],
                )
            )
            if token_id in run.eos_token_ids and index + 1 < k:
                stopped_by = "eos"
                break
        return logits[: len(draft) + 1], draft, stopped_by


def to_host(rows: Tensor) -> Tensor:
    """The copy of a round; waits for all that the device has still to do for it."""
    return rows.cpu()


def can_chain(run: RunContext, model: Any) -> bool:
    """Whether a draft of this model needs nothing from Python before it is complete."""
    settings = run.pipeline.settings
    needs_python = (
        run.confidence is not None
        or settings.repetition_penalty != 1.0
        or settings.suppress_token_ids  # as lists of ids, for which a copy to the device waits
        or settings.min_new_tokens
    )
    return getattr(model, "drafts_in_chains", False) and not needs_python


def draw_chain(
    run: RunContext,
    committed_ids: Sequence[int],
    num_draft_tokens: int,
    round_index: int,
    device: torch.device,
    first_logits: Callable[[], Tensor],
    logits_after: Callable[[Tensor], Tensor],
) -> DraftChain:
    """k tokens that may follow `committed_ids`, where `can_chain`.

    Args:
        first_logits: [1, vocab] raw logits after the committed text.
        logits_after: the same after one more token, [1] on the device.
    """
    start, pipeline = len(committed_ids), run.pipeline
    uniforms = [run.dice.uniform(round_index, start + index, "draft") for index in range(num_draft_tokens)]
    dice = torch.tensor(uniforms, dtype=torch.float64).to(device, non_blocking=True)
    ids: list[Tensor] = []
    adjusted: list[Tensor] = []
    probs: list[Tensor] = []
    for index in range(num_draft_tokens):
        logits = logits_after(ids[-1]) if ids else first_logits()
        row = pipeline.adjust_unseen(logits, start + index)
        adjusted.append(row)
        if pipeline.is_greedy:
            ids.append(row.argmax(-1))
        else:
            probs.append(pipeline.distribution(row))
            found = searched(probs[-1][0], dice[index : index + 1])
            # In a row without numbers, which `from_host` will see, nothing is found: the id is one beyond the last.
            ids.append(found.clamp_max(row.shape[-1] - 1))
    return DraftChain(torch.cat(ids), torch.cat(adjusted), torch.cat(probs) if probs else None)
