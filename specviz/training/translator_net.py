"""Translators as something to train: all layers' maps side by side, and what their exits are trained for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specviz.training.translator_fit import AffineMaps


class TranslatorNet(nn.Module):
    """x -> rms_norm(scale * x + expand (reduce x) + bias) * final_norm, for each of some layers: the output head's
    input, had the model ended there.

    Args:
        final_norm: [hidden], the target's; not trained.
    """

    def __init__(self, maps: AffineMaps, final_norm: Tensor, epsilon: float) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(maps.scale), nn.Parameter(maps.bias)
        self.reduce, self.expand = nn.Parameter(maps.reduce), nn.Parameter(maps.expand)
        self.register_buffer("final_norm", final_norm, persistent=False)
        self._epsilon = epsilon

    @property
    def maps(self) -> AffineMaps:
        return AffineMaps(*(part.detach() for part in (self.scale, self.bias, self.reduce, self.expand)))

    def forward(self, states: Tensor) -> Tensor:
        """[layers, positions, hidden] states over their root mean squares -> [layers, positions, hidden]."""
        low = torch.bmm(states, self.reduce.mT)
        translated = torch.baddbmm(self.bias[:, None] + self.scale[:, None] * states, low, self.expand.mT)
        return torch.rms_norm(translated, translated.shape[-1:], self.final_norm, self._epsilon)


@dataclass(frozen=True, slots=True)
class CutRows:
    """The target's output head for the tokens that confidences are computed over.

    Attributes:
        vocab_ids: [cut] ascending.
        rows: [cut, hidden] float32.
        common: [cut] bool, the most frequent ones, which every step of the training looks at.
    """

    vocab_ids: Tensor
    rows: Tensor
    common: Tensor

    def target_probs(self, head_inputs: Tensor, log_sums: Tensor) -> Tensor:
        """[positions, cut] the target's probabilities; what is missing to 1 lies outside."""
        return torch.exp(head_inputs @ self.rows.T - log_sums[:, None])


@dataclass(frozen=True, slots=True)
class Candidates:
    """A part of the vocabulary that stands for all of it in one step of the training.

    Attributes:
        rows: [candidates, hidden] of the output head.
        log_weights: [candidates], of how many tokens each stands for.
        probs: [positions, candidates], the target's, times how many they stand for.
    """

    rows: Tensor
    log_weights: Tensor
    probs: Tensor


def choose_candidates(
    cut: CutRows, probs: Tensor, least: float, num_drawn: int, generator: torch.Generator
) -> Candidates:
    """All tokens that matter to a step, and some of the others, drawn with equal chances.

    Args:
        probs: [positions, cut], the target's.
        least: tokens that are at least so probable somewhere are always taken, as the common ones are.
    """
    taken = cut.common | (probs.amax(0) >= least)
    rest = torch.nonzero(~taken).flatten()
    drawn = rest[torch.randperm(len(rest), generator=generator)[:num_drawn]]
    chosen = torch.cat([torch.nonzero(taken).flatten(), drawn])
    weights = torch.ones(len(chosen))
    if len(drawn):
        weights[len(chosen) - len(drawn) :] = len(rest) / len(drawn)
    return Candidates(cut.rows[chosen], weights.log(), probs[:, chosen] * weights)


class ExitLoss(torch.autograd.Function):
    """Cross-entropy of exits against the target, summed over layers and meant over positions; the gradient is made on
    the way, a layer at a time, so that no more than one layer's logits are held."""

    @staticmethod
    def forward(ctx, inputs: Tensor, candidates: Candidates) -> Tensor:
        """
        Args:
            inputs: [layers, positions, hidden] of the output head.

        Returns:
            [layers].
        """
        probs, mass = candidates.probs, candidates.probs.sum(-1, keepdim=True)
        losses, gradients = inputs.new_empty(len(inputs)), torch.empty_like(inputs)
        for layer, rows in enumerate(inputs):
            logits = rows @ candidates.rows.T
            weighted = logits + candidates.log_weights
            log_sums = weighted.logsumexp(-1, keepdim=True)
            losses[layer] = (mass * log_sums).mean() - (probs * logits).sum(-1).mean()
            wrong = (weighted - log_sums).exp_().mul_(mass).sub_(probs)
            gradients[layer] = wrong @ candidates.rows / len(rows)
        ctx.save_for_backward(gradients)
        return losses

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (gradients,) = ctx.saved_tensors
        return gradients * grad[:, None, None], None
