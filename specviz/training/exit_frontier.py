"""What early exits are worth over known states: layers saved against agreement, for all thresholds at once.

Pure functions of arrays, no model. A confidence table is [looks, tokens], a row for each exit layer in their order;
`agrees` [looks, tokens] says whether what the model would say there is what the full model says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

GOAL = 0.9  # of the tokens agree


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One threshold.

    Attributes:
        layers_saved: share of the layers that are not run.
        agreement: share of the tokens that are the full model's.
        looks: exit heads asked, a token.
    """

    threshold: float
    layers_saved: float
    agreement: float
    looks: float

    def to_dict(self) -> dict[str, float]:
        return {name: round(float(getattr(self, name)), 4) for name in self.__slots__}


def first_exits(confidences: np.ndarray, threshold: float) -> np.ndarray:
    """[tokens] the first look whose confidence reaches the threshold; the number of looks where none does."""
    reached = confidences >= threshold
    return np.where(reached.any(0), reached.argmax(0), len(confidences))


def point(
    confidences: np.ndarray, agrees: np.ndarray, layers: Sequence[int], num_layers: int, threshold: float
) -> FrontierPoint:
    """What a threshold comes to."""
    exits = first_exits(confidences, threshold)
    run = np.array([*layers, num_layers])[exits]
    agreed = np.vstack([agrees, np.ones((1, agrees.shape[1]), bool)])[exits, np.arange(len(exits))]
    looks = np.minimum(exits + 1, len(layers))
    return FrontierPoint(threshold, 1 - run.mean() / num_layers, agreed.mean(), looks.mean())


def frontier(
    confidences: np.ndarray,
    agrees: np.ndarray,
    layers: Sequence[int],
    num_layers: int,
    thresholds: Sequence[float],
) -> list[FrontierPoint]:
    """A point for each threshold."""
    return [point(confidences, agrees, layers, num_layers, threshold) for threshold in thresholds]


def threshold_for(confidences: np.ndarray, agrees: np.ndarray, num_layers: int, goal: float = GOAL) -> float:
    """The lowest threshold, of those that tell these tokens apart, from which on at least `goal` agree."""
    candidates = np.unique(np.quantile(confidences, np.linspace(0, 1, 400)))
    layers = range(len(confidences))  # only agreement is looked at
    low, high = 0, len(candidates)
    while low < high:  # agreement rises with the threshold, all but for single tokens
        middle = (low + high) // 2
        if point(confidences, agrees, layers, num_layers, candidates[middle]).agreement >= goal:
            high = middle
        else:
            low = middle + 1
    return float(candidates[low]) if low < len(candidates) else float(np.nextafter(candidates[-1], np.inf))


def choose_layers(
    confidences: np.ndarray,
    agrees: np.ndarray,
    layers: Sequence[int],
    num_layers: int,
    most: int,
    goal: float = GOAL,
    look_cost: float = 0.0,
) -> tuple[int, ...]:
    """Which exit layers save most at a threshold at which `goal` of the tokens agree: the best one first, then the one
    that goes with it best, until another one saves nothing more.

    Args:
        look_cost: of an exit head, in layers.
    """
    chosen: list[int] = []
    best = 0.0
    while len(chosen) < most:
        gains: list[tuple[float, int]] = []
        for place in range(len(layers)):
            if place not in chosen:
                tried = sorted([*chosen, place])
                held, named = confidences[tried], [layers[i] for i in tried]
                threshold = threshold_for(held, agrees[tried], num_layers, goal)
                found = point(held, agrees[tried], named, num_layers, threshold)
                gains.append((found.layers_saved - look_cost * found.looks / num_layers, -place))
        gain, place = max(gains, default=(0.0, 0))
        if gain <= best:
            break
        best = gain
        chosen.append(-place)
    return tuple(layers[place] for place in sorted(chosen))


def summary(points: Sequence[FrontierPoint]) -> list[dict[str, Any]]:
    """JSON-plain."""
    return [found.to_dict() for found in points]
