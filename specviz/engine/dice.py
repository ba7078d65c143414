"""Random numbers that are looked up, not streamed.

Each die has an address (seed, round, position, purpose). A run can therefore be replayed from its
seed, a drafter that draws more or fewer numbers moves nobody else's, and two runs share nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import torch
from torch import Tensor

Purpose = Literal["draft", "accept", "extra"]


@dataclass(frozen=True, slots=True)
class Dice:
    """The dice of one run."""

    seed: int

    def uniform(self, round_index: int, position: int, purpose: Purpose) -> float:
        """A number in [0, 1) with 53 random bits, a function of its address alone.

        Args:
            position: absolute index, in the sequence, of the token that the die decides.
        """
        address = f"{self.seed}/{round_index}/{position}/{purpose}".encode()
        bits = int.from_bytes(blake2b(address, digest_size=8).digest(), "big")
        return (bits >> 11) * 2.0**-53


def draw(probs: Tensor, uniform: float) -> int:
    """The token that `uniform` in [0, 1) selects from `probs` ([vocab], need not sum to exactly 1).

    Inverse of the cumulative distribution, in float64: the first id whose cumulative mass exceeds
    `uniform`, hence never one of probability 0.
    """
    return int(searched(probs, torch.tensor([uniform], dtype=torch.float64, device=probs.device)))


def searched(probs: Tensor, uniforms: Tensor) -> Tensor:
    """`draw` for dice [n] float64 that are on the device of `probs` [vocab]: [n] ids, which stay there."""
    cumulative = probs.double().cumsum(0)
    return torch.searchsorted(cumulative / cumulative[-1], uniforms, right=True)
