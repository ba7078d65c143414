"""What a draft is trained for: the target's own distribution, as far as the cut vocabulary reaches.

Cross-entropy against the target's probabilities, which is KL(target || draft) up to a constant. What the
target gives to tokens outside counts for nothing: it is not shared out among those inside (Nadav et al. 2026,
arXiv 2602.23881, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class CutHead:
    """The target's output head for some tokens of its vocabulary.

    Attributes:
        vocab_ids: [cut] ascending.
        rows: [cut, hidden] float32.
    """

    vocab_ids: Tensor
    rows: Tensor

    def target_probs(self, last_states: Tensor, log_sums: Tensor) -> Tensor:
        """[..., cut] the target's probabilities; what is missing to 1 lies outside."""
        return torch.exp(last_states @ self.rows.T - log_sums[..., None])


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


def score(logits: Tensor, target_probs: Tensor, weights: Tensor, *, measure: bool = False) -> Scores:
    """
    Args:
        logits: [positions, cut] of the draft.
        target_probs: [positions, cut].
        weights: [positions].
        measure: whether agreement and overlap are wanted (else 0).
    """
    mass = target_probs.sum(-1)
    losses = mass * logits.logsumexp(-1) - (target_probs * logits).sum(-1)
    agreement = overlap = torch.zeros(())
    if measure:
        best_inside, best = target_probs.max(-1)
        # Where more lies outside than on the best token inside, the target's best token may be outside: not counted.
        same = (logits.argmax(-1) == best) & (best_inside >= 1 - mass)
        agreement = (same * weights).sum()
        overlap = (torch.minimum(logits.softmax(-1), target_probs).sum(-1) * weights).sum()
    return Scores((losses * weights).sum(), agreement, overlap, weights.sum())
