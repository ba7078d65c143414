"""What the rounds of an early-exit run have to agree with: each other's layers, and the run's own start."""

from __future__ import annotations

import itertools

from specviz.events import Round, RunStarted, TokenExit
from specviz.trace.checks import Malformed


class ExitCheck:
    """Follows the `exit` and `map` of a run's rounds; raises `Malformed` where they cannot be."""

    def __init__(self, started: RunStarted) -> None:
        self._is_exit_run = started["mode"] == "early_exit"
        self._num_layers = started["target"]["num_layers"]
        self._info = started.get("early_exit")
        if self._is_exit_run and self._info is None:
            raise Malformed("is missing, though mode is early_exit", "early_exit")
        if not self._is_exit_run and self._info is not None:
            raise Malformed(f"is given, though mode is {started['mode']}", "early_exit")
        if self._is_exit_run and self._num_layers is None:
            raise Malformed("is null, though mode is early_exit", "target", "num_layers")
        layers = self._info["exit_layers"] if self._info else []
        if any(b <= a for a, b in itertools.pairwise(layers)):
            raise Malformed("is not in ascending order", "early_exit", "exit_layers")
        if layers and not 1 <= layers[0] <= layers[-1] < self._num_layers:
            raise Malformed(f"is not between 1 and {self._num_layers - 1}", "early_exit", "exit_layers")

    def check(self, event: Round) -> None:
        """One round, whose own shape is already known to be right."""
        for name, is_due in (("exit", self._is_exit_run), ("map", self._is_map)):
            if (name in event) != is_due:
                raise Malformed("is missing" if is_due else "is given in a run that has none", name)
        if self._is_exit_run:
            self._check_exit(event)
        if self._is_map:
            self._check_map(event)

    @property
    def _is_map(self) -> bool:
        return self._info is not None and self._info["run"] == "map"

    def _check_exit(self, event: Round) -> None:
        left, exits = event["exit"], self._info["exit_layers"]
        if event["draft"]:
            raise Malformed("has tokens, but an early-exit run drafts none", "draft")
        if left["layer"] != self._num_layers and left["layer"] not in exits:
            raise Malformed(f"is {left['layer']}, which is no exit layer and not the last one", "exit", "layer")
        most = sum(layer <= left["layer"] for layer in exits)
        if len(left["confidences"]) > most:
            raise Malformed(f"has {len(left['confidences'])} entries for {most} exit layers", "exit", "confidences")
        if not self._is_map:
            self._check_decision(left)

    def _check_decision(self, left: TokenExit) -> None:
        """In a timed run a token leaves at the first exit layer where its confidence reaches the threshold."""
        confidences, threshold = left["confidences"], left["threshold"]
        has_left = left["layer"] < self._num_layers
        if threshold is None:
            if has_left or confidences:
                raise Malformed("is null, though the layers were looked at", "exit", "threshold")
            return
        if has_left and (not confidences or confidences[-1] < threshold):
            raise Malformed(
                "has no last entry that reaches the threshold, though the token left", "exit", "confidences"
            )
        if any(value >= threshold for value in confidences[: len(confidences) - has_left]):
            raise Malformed("reaches the threshold where the token did not leave", "exit", "confidences")

    def _check_map(self, event: Round) -> None:
        lists = {("ids",): event["map"]["ids"], ("texts",): event["map"]["texts"]}
        lists |= {
            ("measures", name): event["map"]["measures"][name] for name in ("top1", "gap", "entropy", "saturation")
        }
        for path, values in lists.items():
            if len(values) != self._num_layers:
                raise Malformed(f"has {len(values)} entries for {self._num_layers} layers", "map", *path)
