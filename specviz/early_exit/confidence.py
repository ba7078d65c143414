"""How sure a state is of its token, measured in four ways; pure functions of logits and states. See `surety.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from specviz.early_exit.surety import rounded


def top1(logits: Tensor) -> Tensor:
    """[rows, cut] -> [rows]: the largest probability (softmax response, CALM section 3.5)."""
    return logits.softmax(-1).amax(-1)


def gap(logits: Tensor) -> Tensor:
    """[rows, cut] -> [rows]: between the two largest probabilities; 1 where there is one token only."""
    probs = logits.softmax(-1)
    if probs.shape[-1] == 1:
        return probs[:, 0]
    first, second = probs.topk(2, dim=-1).values.unbind(-1)
    return first - second


def entropy(logits: Tensor) -> Tensor:
    """[rows, cut] -> [rows]: in nats, from 0 (sure) to log(cut). What it says as a confidence: `surety_of`."""
    log_probs = logits.log_softmax(-1)
    # A token of probability 0 adds nothing, where 0 * -inf would.
    return -(log_probs.exp() * log_probs.clamp_min(torch.finfo(log_probs.dtype).min)).sum(-1)


def saturation(states: Tensor, states_before: Tensor) -> Tensor:
    """[rows, hidden] twice -> [rows]: the cosine between the residual states after a layer and before it: how little
    the layer turned them (hidden-state saturation, CALM section 3.5)."""
    return torch.nn.functional.cosine_similarity(states.float(), states_before.float(), dim=-1)


def measure_logits(logits: Tensor) -> dict[str, list[float]]:
    """top1, gap and entropy (in nats) of every row of [rows, cut], rounded."""
    return {
        name: [rounded(value) for value in of(logits).tolist()]
        for name, of in (("top1", top1), ("gap", gap), ("entropy", entropy))
    }
