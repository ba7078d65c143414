"""What the parts of a round cost, in one-token target passes: c, v and the overhead, from timed repetitions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# Its steps are lookups: they cost next to nothing, and a different next-to-nothing each time.
WITHOUT_STEP_COST = ("prompt_lookup",)
# Drafts in the target's first layers: verification goes on behind them.
SHARING_LAYERS = ("early_exit",)


@dataclass(frozen=True, slots=True)
class Costs:
    """All measured, as medians over repetitions; the unit is one one-token target pass.

    Attributes:
        c: drafter -> one draft step; None where a step has no constant cost, or none was measured.
        v: index n-1 = a target pass over n tokens, all their logits included; v[0] is 1.
        overhead: the rest of a round that drafted something (verdict, texts, the event); None if none did.
        plain_overhead: the same of a round of plain decoding.
        target_pass_seconds: the unit.
        spared: drafter -> of what a pass over several tokens costs beyond one over one token, the share that its
            verification spares, as drafting has run the first layers of all but one of them; 0 where it shares none.
        context_tokens: how much text lay before.
        repetitions: how often all was measured.
    """

    c: dict[str, float | None]
    v: list[float]
    overhead: float | None
    plain_overhead: float
    target_pass_seconds: float
    context_tokens: int
    repetitions: int
    spared: dict[str, float] = field(default_factory=dict)

    def verify_cost_ratio(self, num_tokens: int) -> float:
        """v(n); beyond what was measured the line through its second half goes on."""
        if num_tokens <= len(self.v):
            return self.v[num_tokens - 1]
        middle = len(self.v) // 2
        slope = (self.v[-1] - self.v[middle]) / (len(self.v) - 1 - middle)
        return self.v[-1] + slope * (num_tokens - len(self.v))

    def verification_cost(self, drafter: str, num_tokens: int) -> float:
        """Of a round of this drafter that verifies `num_tokens` (the pending one among them)."""
        whole = self.verify_cost_ratio(num_tokens)
        return whole - self.spared.get(drafter, 0.0) * (whole - 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def fold_costs(repetitions: Sequence[Mapping[str, Any]], context_tokens: int) -> Costs:
    """The costs from the answers of a `CostMeter`, of which there is at least one.

    v is the median of each repetition's own ratio, in which a slow moment divides out.
    """
    unit = statistics.median(repetition["pass_seconds"][0] for repetition in repetitions)
    ratios = [[t / repetition["pass_seconds"][0] for t in repetition["pass_seconds"]] for repetition in repetitions]
    rounds = {
        drafter: [each for repetition in repetitions for each in repetition["rounds"][drafter]]
        for drafter in repetitions[0]["rounds"]
    }
    plain = rounds.pop("none")
    drafting = [each for kind in rounds.values() for each in kind if each["steps"]]
    v = [statistics.median(column) for column in zip(*ratios, strict=True)]
    return Costs(
        c={drafter: _step_cost(drafter, each, unit) for drafter, each in rounds.items()},
        v=v,
        overhead=_median_or_none([each["other"] / unit for each in drafting]),
        plain_overhead=statistics.median(each["other"] / unit for each in plain),
        target_pass_seconds=unit,
        context_tokens=context_tokens,
        repetitions=len(repetitions),
        spared={drafter: _spared(each, v, unit) for drafter, each in rounds.items() if drafter in SHARING_LAYERS},
    )


def _step_cost(drafter: str, rounds: Sequence[Mapping[str, Any]], unit: float) -> float | None:
    if drafter in WITHOUT_STEP_COST:
        return None
    return _median_or_none([each["draft"] / each["steps"] / unit for each in rounds if each["steps"]])


def _spared(rounds: Sequence[Mapping[str, Any]], v: Sequence[float], unit: float) -> float:
    shares = [
        (v[each["steps"]] - each["verify"] / unit) / (v[each["steps"]] - 1)
        for each in rounds
        if 0 < each["steps"] < len(v) and v[each["steps"]] > 1
    ]
    return min(1.0, max(0.0, statistics.median(shares))) if shares else 0.0


def _median_or_none(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
