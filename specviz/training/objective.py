"""What a draft is trained for: the target's own distribution, as far as what the draft can say reaches.

It can say a cut vocabulary and, where its output head is the target's, the tokens that stand in the text so far
(`engine/cut_vocabulary.py`). Cross-entropy against the target's probabilities, which is KL(target || draft) up to a constant. What the
target gives to tokens outside counts for nothing: it is not shared out among those inside (Nadav et al. 2026,
arXiv 2602.23881, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MEASURED_AT_ONCE = 512  # positions, with the logits of a whole vocabulary
ROUNDING = 1e-4  # of a probability that is computed in two ways
UNSAYABLE = -1e9  # a logit that is 0 as a probability, and finite, so that 0 times it is 0


@dataclass(frozen=True, slots=True)
class CutHead:
    """The target's output head for the tokens that a draft can say.

    Attributes:
        vocab_ids: [cut] ascending.
        rows: [cut, hidden] float32.
        all_rows: [vocab, hidden], where the draft can say the tokens of its text too; else None.
    """

    vocab_ids: Tensor
    rows: Tensor
    all_rows: Tensor | None = None

    def with_context(self, ids: Tensor, first: int) -> ContextHead:
        """The head for a batch.

        Args:
            ids: [sequences, tokens].
            first: output i of a sequence knows its tokens up to i + first.
        """
        sequences, tokens = ids.shape
        if self.all_rows is None:
            return ContextHead(self.rows, self.rows[:0], torch.zeros(sequences, tokens - first, 0, dtype=torch.bool))
        found = torch.unique(ids)
        extra_ids = found[~torch.isin(found, self.vocab_ids)]
        stands = (ids[..., None] == extra_ids).cumsum(1) > 0
        return ContextHead(self.rows, self.all_rows[extra_ids].float(), stands[:, first:])

    def best_probs(self, last_states: Tensor, log_sums: Tensor) -> Tensor | None:
        """[positions] the probability of the token that the target finds most probable, of the whole vocabulary; None where
        only the cut is known.

        Args:
            last_states: [positions, hidden]. log_sums: [positions].
        """
        if self.all_rows is None:
            return None
        best = [(part @ self.all_rows.float().T).amax(-1) for part in last_states.split(MEASURED_AT_ONCE)]
        return torch.exp(torch.cat(best) - log_sums)


@dataclass(frozen=True, slots=True)
class ContextHead:
    """A cut head with the further tokens of a batch.

    Attributes:
        rows: [cut, hidden]. extra_rows: [extra, hidden].
        sayable: [sequences, positions, extra], whether a token stands in the text that an output knows.
    """

    rows: Tensor
    extra_rows: Tensor
    sayable: Tensor

    def logits(self, states: Tensor, chosen: Tensor) -> Tensor:
        """[chosen positions, cut + extra] of states [chosen positions, hidden].

        Args:
            chosen: [sequences, positions] bool.
        """
        extra = (states @ self.extra_rows.T).masked_fill(~self.sayable[chosen], UNSAYABLE)
        return torch.cat([states @ self.rows.T, extra], -1)

    def target_probs(self, last_states: Tensor, log_sums: Tensor, chosen: Tensor) -> Tensor:
        """[chosen positions, cut + extra] the target's probabilities; what is missing to 1 cannot be said."""
        return torch.exp(self.logits(last_states, chosen) - log_sums[..., None])


@dataclass(frozen=True, slots=True)
class Scores:
    """Sums over weighted positions; divide by `weight`.

    Attributes:
        loss: differentiable.
        agreement: positions where the draft's and the target's most probable tokens are the same.
        overlap: of sum over tokens of min(target, draft), the chance that a drawn token is accepted (Leviathan et
            al. 2023, corollary 3.6).
    """

    loss: Tensor
    agreement: Tensor
    overlap: Tensor
    weight: Tensor

    @property
    def mean_loss(self) -> Tensor:
        return self.loss / self.weight.clamp_min(1e-6)


def score(
    logits: Tensor, target_probs: Tensor, weights: Tensor, *, measure: bool = False, target_best: Tensor | None = None
) -> Scores:
    """
    Args:
        logits: [positions, sayable] of the draft.
        target_probs: [positions, sayable].
        weights: [positions].
        measure: whether agreement and overlap are wanted (else 0).
        target_best: [positions], see `CutHead.best_probs`. Without it, agreement counts only where the target's best token
            is certain to be sayable: where no more lies outside than on the best inside.
    """
    mass = target_probs.sum(-1)
    losses = mass * logits.logsumexp(-1) - (target_probs * logits).sum(-1)
    agreement = overlap = torch.zeros(())
    if measure:
        best_inside, best = target_probs.max(-1)
        least = 1 - mass if target_best is None else target_best * (1 - ROUNDING)
        same = (logits.argmax(-1) == best) & (best_inside >= least)
        agreement = (same * weights).sum()
        overlap = (torch.minimum(logits.softmax(-1), target_probs).sum(-1) * weights).sum()
    return Scores((losses * weights).sum(), agreement, overlap, weights.sum())
