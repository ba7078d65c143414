"""One token on its way through the layers: what the exit heads say of it, and whether it leaves."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from torch import Tensor

from specviz.early_exit import confidence
from specviz.early_exit.exit_plan import ExitPlan
from specviz.early_exit.surety import rounded, surety_of
from specviz.engine.layerwise import LayerStates, Onward


class TokenLook:
    """Given to `LayerwiseModel.forward_by_layer` for one token.

    Args:
        threshold: the one in force; None = it never leaves, and nothing is asked.
        synchronize: waits for the device, so that the heads' clock holds their own time only.

    Attributes:
        layers: after which it wants to be asked.
        confidences: at each exit layer that was looked at, in order.
        head_seconds: the time in exit heads.
    """

    def __init__(self, plan: ExitPlan, threshold: float | None, synchronize: Callable[[], None]) -> None:
        self._plan, self._threshold, self._synchronize = plan, threshold, synchronize
        self._states_before: Tensor | None = None
        self._cut_logits: Tensor | None = None
        looks = plan.layers if threshold is not None else ()
        compares = plan.settings.measure == "saturation"
        self._exits = frozenset(looks)
        self.layers = frozenset((*looks, *(layer - 1 for layer in looks))) if compares else self._exits
        self.confidences: list[float] = []
        self.head_seconds = 0.0

    def after_layer(self, layer: int, states: Tensor) -> Onward:
        """Leave, if the state is sure enough."""
        self._synchronize()
        start = perf_counter()
        onward = Onward.NEXT
        if layer in self._exits:
            self.confidences.append(self._confidence(layer, states))
            if self.confidences[-1] >= self._threshold:
                onward = Onward.LEAVE
        if self._plan.settings.measure == "saturation":
            self._states_before = states.clone()
        self.head_seconds += perf_counter() - start
        return onward

    def cut_logits_of(self, ended: LayerStates) -> Tensor:
        """[1, cut] of the layer where the token left."""
        if self._cut_logits is None:
            self._cut_logits = self._plan.heads.cut_logits(ended.layer, ended.states)
        return self._cut_logits

    def _confidence(self, layer: int, states: Tensor) -> float:
        measure = self._plan.settings.measure
        if measure == "saturation":
            # Before the first layer stands nothing that could be compared.
            before = self._states_before
            return 0.0 if before is None else rounded(float(confidence.saturation(states, before)))
        self._cut_logits = logits = self._plan.heads.cut_logits(layer, states)
        if measure == "entropy":
            return surety_of(rounded(float(confidence.entropy(logits))), logits.shape[-1])
        return rounded(float({"top1": confidence.top1, "gap": confidence.gap}[measure](logits)))
