"""Which tokens would leave where, worked out from a map run's rounds: pure functions, no model.

A simulation looks at the text of plain decoding. In a real run a token that left early stands in the text, and all
later ones are conditioned on it: exits and agreement may come out differently there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specviz.early_exit.exit_settings import decayed
from specviz.early_exit.surety import surety_of
from specviz.events import Round


@dataclass(frozen=True, slots=True)
class SimulatedExits:
    """What the rounds of a map run would have come to.

    Attributes:
        layers: of each token, the layer after which it would have left (the last one: it would not).
        agreed: of each token, whether its exit layer's choice is the full model's.
    """

    layers: tuple[int, ...]
    agreed: tuple[bool, ...]

    @property
    def mean_layers(self) -> float | None:
        return sum(self.layers) / len(self.layers) if self.layers else None

    @property
    def agreement(self) -> float | None:
        """Share of tokens that agree."""
        return sum(self.agreed) / len(self.agreed) if self.agreed else None


def exits_at(
    rounds: Sequence[Round],
    measure: str,
    threshold: float | None,
    exit_layers: Sequence[int],
    min_layer: int = 1,
    decay: float = 0.0,
    *,
    max_new_tokens: int = 1,
    cut_vocab_size: int,
) -> list[int]:
    """The layer after which each token would leave; the last one where it would not.

    Args:
        rounds: of a map run, in order.
        threshold: None = never.
        max_new_tokens: of the run's settings, over which the threshold decays.
        cut_vocab_size: of the run's heads; entropies are over so many tokens.
    """
    return [
        _exit_of(
            event["map"]["measures"][measure],
            measure,
            None if threshold is None else decayed(threshold, decay, index, max_new_tokens),
            [layer for layer in exit_layers if layer >= min_layer],
            cut_vocab_size,
        )
        for index, event in enumerate(rounds)
    ]


def simulate(rounds: Sequence[Round], *args: Any, **kwargs: Any) -> SimulatedExits:
    """`exits_at` with what follows from it; the same arguments."""
    layers = exits_at(rounds, *args, **kwargs)
    agreed = (
        event["map"]["ids"][layer - 1] == event["map"]["ids"][-1] for event, layer in zip(rounds, layers, strict=True)
    )
    return SimulatedExits(tuple(layers), tuple(agreed))


def _exit_of(
    values: Sequence[float | None],
    measure: str,
    threshold: float | None,
    exit_layers: Sequence[int],
    cut_vocab_size: int,
) -> int:
    for layer in exit_layers if threshold is not None else ():
        if _confidence(values[layer - 1], measure, cut_vocab_size) >= threshold:
            return layer
    return len(values)


def _confidence(value: float | None, measure: str, cut_vocab_size: int) -> float:
    if value is None:
        return 0.0
    return surety_of(value, cut_vocab_size) if measure == "entropy" else value
