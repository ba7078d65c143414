"""`ExitSettings`: when a token may leave the model early; checked once, at the door."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from specviz.config import EXIT_HEADS
from specviz.errors import BadRequest

EXIT_MEASURES = ("top1", "gap", "entropy", "saturation")
NEVER = "never"
MOST_EXIT_LAYERS = 16

# Where a model of one layer to thirty is looked into, unless told otherwise: these of 30, in proportion.
HANDFUL, OF_LAYERS = (10, 14, 18, 21, 24, 26, 28), 30
LEAST_DECAYED = 0.9  # what decay leaves of a threshold in the end


@dataclass(frozen=True, slots=True)
class ExitSettings:
    """How to leave early.

    Attributes:
        measure: what a threshold is for, one of `EXIT_MEASURES`; of all, higher means surer.
        threshold: a token leaves at the first exit layer whose measure reaches it; "never" is plain decoding.
        threshold_decay: tau, how fast the threshold falls over a run, to `LEAST_DECAYED` of itself; 0 is off.
        min_layer: no token leaves before so many layers; null = the first exit layer.
        exit_layers: after how many layers it is looked at; null = those where it usually pays (see the heads).
        heads: "auto" takes translators where there are some for the target, else plain heads.

    Raises:
        BadRequest: naming the value, the choices and the remedy.
    """

    measure: str = "top1"
    threshold: float | Literal["never"] = 0.6
    threshold_decay: float = 0.0
    min_layer: int | None = None
    exit_layers: tuple[int, ...] | None = None
    heads: str = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.exit_layers, list):
            object.__setattr__(self, "exit_layers", tuple(self.exit_layers))
        if self.measure not in EXIT_MEASURES:
            raise BadRequest(f"exit_measure is {self.measure!r}: choose one of {', '.join(EXIT_MEASURES)}.")
        if self.heads not in EXIT_HEADS:
            raise BadRequest(f"exit_heads is {self.heads!r}: choose one of {', '.join(EXIT_HEADS)}.")
        if self.threshold != NEVER:
            _real("exit_threshold", self.threshold, 0.0, 1.0, 'or "never"')
        _real("exit_threshold_decay", self.threshold_decay, 0.0, 1000.0, "(0 turns it off)")
        if self.min_layer is not None:
            _layer("exit_min_layer", self.min_layer)
        if self.exit_layers is not None:
            self._check_layers()

    def _check_layers(self) -> None:
        if not isinstance(self.exit_layers, tuple) or not 1 <= len(self.exit_layers) <= MOST_EXIT_LAYERS:
            raise BadRequest(f"exit_layers is {self.exit_layers!r}: give a list of 1 to {MOST_EXIT_LAYERS} layers.")
        for layer in self.exit_layers:
            _layer("an exit layer", layer)
        if list(self.exit_layers) != sorted(set(self.exit_layers)):
            raise BadRequest(f"exit_layers is {list(self.exit_layers)}: give each layer once, in ascending order.")

    def refuse_beyond(self, num_layers: int, target_name: str) -> None:
        """Raises BadRequest for layers that a target of so many does not have."""
        for layer in self.exit_layers or ():
            if layer >= num_layers:
                raise BadRequest(
                    f"an exit layer is {layer}: {target_name} has {num_layers} layers, choose below {num_layers}."
                )
        if self.min_layer is not None and self.min_layer > num_layers:
            raise BadRequest(
                f"exit_min_layer is {self.min_layer}: {target_name} has {num_layers} layers, choose 1 to {num_layers}."
            )

    def chosen_layers(
        self, readable: Sequence[int], usual: Sequence[int], num_layers: int, target_name: str
    ) -> tuple[int, ...]:
        """The exit layers of a run: those that were asked for, or the usual ones, from `min_layer` on.

        Args:
            readable: ascending, the layers that the heads can read out, all below `num_layers`.
            usual: those that are looked at where nobody says which.

        Raises:
            BadRequest: a layer that the target lacks or the heads cannot read, or none is left.
        """
        self.refuse_beyond(num_layers, target_name)
        layers = usual if self.exit_layers is None else self.exit_layers
        for layer in layers:
            if layer not in readable:
                raise BadRequest(
                    f"an exit layer is {layer}, and there is no exit head for it: choose from {_listed(readable)}."
                )
        chosen = tuple(layer for layer in layers if layer >= (self.min_layer or 1))
        if not chosen and self.threshold != NEVER:
            raise BadRequest(
                f"exit_min_layer is {self.min_layer}, which leaves none of the exit layers {_listed(layers)}: lower it."
            )
        return chosen

    def threshold_at(self, index: int, max_new_tokens: int) -> float | None:
        """What new token `index` (from 0) has to reach; None = it never leaves early. See `decayed`."""
        if self.threshold == NEVER:
            return None
        return decayed(self.threshold, self.threshold_decay, index, max_new_tokens)

    def to_dict(self) -> dict[str, Any]:
        """All settings as JSON-plain values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ExitSettings:
        """The settings that somebody stored; raises BadRequest on an unknown name."""
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise BadRequest(f"Unknown exit setting {key!r}: the settings are {', '.join(known)}.")
        return cls(**values)


def decayed(threshold: float, tau: float, index: int, max_new_tokens: int) -> float:
    """The threshold of new token `index`: threshold * (0.9 + 0.1 * exp(-tau * index / max_new_tokens)).

    The shape of CALM's equation 5 (Schuster et al. 2022, arXiv 2207.07061): early tokens are what all later ones
    are conditioned on, so they have to be surer. Theirs adds 0.1 to any threshold at the start; here it starts
    at the threshold itself, and tau = 0 leaves it alone.
    """
    return threshold * (LEAST_DECAYED + (1 - LEAST_DECAYED) * math.exp(-tau * index / max_new_tokens))


def handful_of(num_layers: int) -> tuple[int, ...]:
    """`HANDFUL` of `OF_LAYERS`, in proportion to a model's layers, each once, and below the last.

    >>> handful_of(12)
    (4, 6, 7, 8, 10, 11)
    """
    wanted = (max(1, round(layer * num_layers / OF_LAYERS)) for layer in HANDFUL)
    return tuple(sorted({layer for layer in wanted if layer < num_layers}))


def _listed(layers: Sequence[int]) -> str:
    return ", ".join(map(str, layers)) or "none"


def _layer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
        raise BadRequest(f"{name} is {value!r}: give a whole number from 1 to 10000.")


def _real(name: str, value: object, low: float, high: float, remark: str) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:
        raise BadRequest(f"{name} is {value!r}: give a number from {low:g} to {high:g} {remark}.")
