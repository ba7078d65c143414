"""Where translators start: the affine map of low rank that foretells the last state best, in closed form.

Ridge regression from each layer's states onto the last one's, then the best approximation of low rank
(reduced-rank regression, Izenman 1975).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

RIDGE = 1e-3  # of the mean variance of a channel
LEAST_VARIANCE = 1e-9  # of the mean one


@dataclass(frozen=True, slots=True)
class AffineMaps:
    """For each of some layers: x -> scale * x + expand (reduce x) + bias.

    Attributes:
        scale, bias: [layers, hidden].
        reduce: [layers, rank, hidden].
        expand: [layers, hidden, rank].
    """

    scale: Tensor
    bias: Tensor
    reduce: Tensor
    expand: Tensor


class Moments:
    """First and second moments of some layers' states, and of the last state that belongs to them."""

    def __init__(self, num_layers: int, hidden: int) -> None:
        self.count = 0
        self.means = torch.zeros(num_layers, hidden, dtype=torch.float64)  # sums, until they are asked for
        self.last_mean = torch.zeros(hidden, dtype=torch.float64)
        self.own = torch.zeros(num_layers, hidden, hidden, dtype=torch.float64)
        self.with_last = torch.zeros_like(self.own)  # [last, own]

    def add(self, states: Tensor, last: Tensor) -> None:
        """
        Args:
            states: [layers, positions, hidden] float32.
            last: [positions, hidden].
        """
        self.count += len(last)
        self.means += states.sum(1)
        self.last_mean += last.sum(0)
        for layer, own in enumerate(states):
            self.own[layer] += own.T @ own
            self.with_last[layer] += last.T @ own


def fit(batches: Iterable[tuple[Tensor, Tensor]], rank: int) -> AffineMaps:
    """The maps from (states [layers, positions, hidden], last states [positions, hidden]), both over their root mean
    squares; rank is at most hidden."""
    moments: Moments | None = None
    for states, last in batches:
        moments = moments or Moments(len(states), last.shape[-1])
        moments.add(states, last)
    assert moments is not None, "nothing to fit to"
    maps = [_fit_layer(moments, layer, rank) for layer in range(len(moments.own))]
    return AffineMaps(*(torch.stack(parts).float().contiguous() for parts in zip(*maps, strict=True)))


def _fit_layer(moments: Moments, layer: int, rank: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(scale, bias, reduce, expand) of one layer."""
    own_mean, last_mean = moments.means[layer] / moments.count, moments.last_mean / moments.count
    covariance = moments.own[layer] / moments.count - torch.outer(own_mean, own_mean)
    covariance.diagonal().add_(RIDGE * covariance.diagonal().mean() + 1e-9)
    with_last = moments.with_last[layer] / moments.count - torch.outer(last_mean, own_mean)
    whole = torch.linalg.solve(covariance, with_last.T).T
    scale = whole.diagonal().clone()
    spread, inverse_spread = _roots(covariance)
    left, sizes, right = torch.linalg.svd((whole - torch.diag(scale)) @ spread)
    kept = sizes[:rank].sqrt()
    expand, reduce = left[:, :rank] * kept, (kept[:, None] * right[:rank]) @ inverse_spread
    return scale, last_mean - scale * own_mean - expand @ (reduce @ own_mean), reduce, expand


def _roots(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The symmetric square root and its inverse."""
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp_min(LEAST_VARIANCE * values.mean())
    return (vectors * values.sqrt()) @ vectors.T, (vectors * values.rsqrt()) @ vectors.T
