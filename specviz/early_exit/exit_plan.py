"""When the tokens of one run may leave the target: its exit settings, made concrete for its target and heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specviz.early_exit.exit_heads import ExitHeads
from specviz.early_exit.exit_settings import ExitSettings
from specviz.engine.layerwise import LayerwiseModel


@dataclass(frozen=True, slots=True)
class ExitPlan:
    """Attributes:
    layers: ascending, the exit layers that are looked at.
    max_new_tokens: of the run, over which a threshold decays.
    """

    settings: ExitSettings
    heads: ExitHeads
    layers: tuple[int, ...]
    num_layers: int
    max_new_tokens: int

    @classmethod
    def of(cls, settings: ExitSettings, heads: ExitHeads, target: LayerwiseModel, max_new_tokens: int) -> ExitPlan:
        """Raises BadRequest for layers that the target or the heads lack."""
        layers = settings.chosen_layers(heads.layers, heads.exit_layers, target.num_layers, target.name)
        return cls(settings, heads, layers, target.num_layers, max_new_tokens)

    def threshold_at(self, index: int) -> float | None:
        """What new token `index` (from 0) has to reach; None = it never leaves early."""
        return self.settings.threshold_at(index, self.max_new_tokens)

    def describe(self, run: str) -> dict[str, Any]:
        """The `early_exit` object of a trace. `run` is "timed" or "map"."""
        heads, threshold = self.heads, self.settings.threshold
        return {
            "run": run,
            "measure": self.settings.measure,
            "threshold": None if threshold == "never" else threshold,
            "threshold_decay": self.settings.threshold_decay,
            "min_layer": self.settings.min_layer or min(self.layers, default=self.num_layers),
            "exit_layers": list(self.layers),
            "heads": {
                "kind": heads.kind,
                "name": heads.name,
                "cut_vocab_size": len(heads.vocab_ids),
                "num_params": heads.num_params,
            },
        }
