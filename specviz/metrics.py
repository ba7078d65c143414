"""Metrics as folds over events: count first, divide once, and say what was divided by what.

The engine, the trace reader, the page and the terminal all take their numbers from here. A ratio with
nothing in its denominator is None, never 0. What a server committed at prefill is in no ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from specviz.events import Counts, Event, Round

NOISE = 0.05  # by which one measurement of a speedup may be off and nobody wonders
EXTRA_COUNTS = {"correction": "corrections", "bonus": "bonuses", "plain": "plains"}
COUNT_NAMES = tuple(Counts.__annotations__)

# Every plain ratio of two counts: name -> (numerator, what is added up in the denominator).
RATIOS: dict[str, tuple[str, tuple[str, ...]]] = {
    "alpha": ("accepted", ("accepted", "rejected")),
    "draft_acceptance_rate": ("accepted", ("drafted",)),
    "mean_tokens_per_round": ("committed", ("rounds",)),
    "mean_accepted_draft_tokens": ("accepted", ("rounds",)),
}
METRIC_NAMES = (
    *RATIOS,
    "alpha_interval",
    "acceptance_by_position",
    "conditional_acceptance_by_position",
    "judged_by_position",
    "tokens_per_round_histogram",
    "tokens_per_second",
    "time_shares",
)
EXIT_METRIC_NAMES = ("mean_layers_per_token", "layers_saved", "exit_counts", "mean_head_seconds")

Z_95 = 1.959963984540054  # the 97.5th percentile of the standard normal


@dataclass(slots=True)
class MetricsFold:
    """The running sums of a run; feed it events in order with `add`, ask at any time.

    Attributes:
        counts: the raw counts of all rounds so far.
        accepted_by_position: [longest draft] rounds in which position i was accepted.
        judged_by_position: [longest draft] rounds in which position i was accepted or rejected.
        tokens_per_round: index n = rounds that committed n tokens.
        seconds: time of the rounds by part; None once a round came without times (a served run).
        exits: early-exit runs: layers that were run for a token -> tokens.
        head_seconds: time in exit heads.
        num_layers: of the target, where the run's start has told.
    """

    counts: Counts = field(default_factory=lambda: Counts(**dict.fromkeys(COUNT_NAMES, 0)))
    accepted_by_position: list[int] = field(default_factory=list)
    judged_by_position: list[int] = field(default_factory=list)
    tokens_per_round: list[int] = field(default_factory=list)
    seconds: dict[str, float] | None = field(default_factory=lambda: {"draft": 0.0, "verify": 0.0, "other": 0.0})
    exits: dict[int, int] = field(default_factory=dict)
    head_seconds: float = 0.0
    num_layers: int | None = None

    def add(self, event: Event) -> MetricsFold:
        """Take in one event; every type but `run_started` and `round` changes nothing. Returns itself."""
        if event["type"] == "run_started":
            self.num_layers = event["target"]["num_layers"]
        if event["type"] == "round":
            self._add_statuses(event)
            self._add_committed(event)
            self._add_seconds(event)
            self._add_exit(event)
        return self

    def metrics(self) -> dict[str, Any]:
        """All of `METRIC_NAMES`, and of an early-exit run all of `EXIT_METRIC_NAMES`, from the sums so far."""
        metrics = metrics_from_counts(
            self.counts,
            accepted_by_position=self.accepted_by_position,
            judged_by_position=self.judged_by_position,
            tokens_per_round=self.tokens_per_round,
            seconds=self.seconds,
        )
        return metrics | exit_metrics(self.exits, self.head_seconds, self.num_layers) if self.exits else metrics

    def _add_statuses(self, event: Round) -> None:
        missing = len(event["draft"]) - len(self.judged_by_position)
        self.judged_by_position.extend([0] * missing)
        self.accepted_by_position.extend([0] * missing)
        for position, token in enumerate(event["draft"]):
            self.counts["drafted"] += 1
            self.counts[token["status"]] += 1
            self.accepted_by_position[position] += token["status"] == "accepted"
            self.judged_by_position[position] += token["status"] in ("accepted", "rejected")

    def _add_committed(self, event: Round) -> None:
        num_committed = len(event["committed"])
        self.counts["rounds"] += 1
        self.counts["committed"] += num_committed
        if event["extra"] is not None:
            self.counts[EXTRA_COUNTS[event["extra"]["kind"]]] += 1
        self.tokens_per_round.extend([0] * (num_committed + 1 - len(self.tokens_per_round)))
        self.tokens_per_round[num_committed] += 1

    def _add_exit(self, event: Round) -> None:
        if (left := event.get("exit")) is not None:
            self.exits[left["layer"]] = self.exits.get(left["layer"], 0) + 1
            self.head_seconds += left["head_seconds"]

    def _add_seconds(self, event: Round) -> None:
        for name in self.seconds or ():
            if event["seconds"][name] is None:
                self.seconds = None
                return
            self.seconds[name] += event["seconds"][name]


def fold_metrics(events: Iterable[Event]) -> MetricsFold:
    """The sums of a whole run."""
    fold = MetricsFold()
    for event in events:
        fold.add(event)
    return fold


def fold_counts(events: Iterable[Event]) -> Counts:
    """The raw counts of a whole run."""
    return fold_metrics(events).counts


def metrics_from_counts(
    counts: Counts,
    *,
    accepted_by_position: Sequence[int] = (),
    judged_by_position: Sequence[int] = (),
    tokens_per_round: Sequence[int] = (),
    seconds: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Every ratio of a run, JSON-plain, by the names of `METRIC_NAMES`.

    `alpha` is per *judged* token (accepted + rejected); `draft_acceptance_rate` is per *drafted* token
    and falls as k grows; `mean_tokens_per_round` includes the extra token.
    `acceptance_by_position[i]` is over all rounds; `conditional_acceptance_by_position[i]` over the
    `judged_by_position[i]` rounds that judged position i.

    Args:
        counts: raw counts, rounds only.
        accepted_by_position, judged_by_position, tokens_per_round, seconds: as in `MetricsFold`.
    """
    metrics: dict[str, Any] = {name: count_ratio(name, counts) for name in RATIOS}
    metrics["alpha_interval"] = wilson_interval(counts["accepted"], counts["accepted"] + counts["rejected"])
    metrics["acceptance_by_position"] = [ratio(n, counts["rounds"]) for n in accepted_by_position]
    metrics["conditional_acceptance_by_position"] = [
        ratio(accepted, judged) for accepted, judged in zip(accepted_by_position, judged_by_position, strict=True)
    ]
    metrics["judged_by_position"] = list(judged_by_position)
    metrics["tokens_per_round_histogram"] = list(tokens_per_round)
    total_seconds = sum(seconds.values()) if seconds is not None else 0.0
    metrics["tokens_per_second"] = ratio(counts["committed"], total_seconds)
    metrics["time_shares"] = {part: s / total_seconds for part, s in seconds.items()} if total_seconds > 0 else None
    return metrics


def exit_metrics(exits: dict[int, int], head_seconds: float, num_layers: int | None) -> dict[str, Any]:
    """The metrics that early-exit runs have besides, by the names of `EXIT_METRIC_NAMES`.

    `layers_saved` is the share of the target's layers that were not run, of all its layers for all tokens (what a
    skipped layer's keys and values cost is not in it); `mean_head_seconds` is per token.

    Args:
        exits: layers that were run for a token -> tokens.
        num_layers: of the target; None where it is not known.
    """
    num_tokens = sum(exits.values())
    mean_layers = ratio(sum(layer * tokens for layer, tokens in exits.items()), num_tokens)
    is_known = num_layers is not None and num_layers > 0 and mean_layers is not None
    return {
        "mean_layers_per_token": mean_layers,
        "layers_saved": 1 - mean_layers / num_layers if is_known else None,
        "exit_counts": {str(layer): exits[layer] for layer in sorted(exits)},
        "mean_head_seconds": ratio(head_seconds, num_tokens),
    }


def count_ratio(name: str, counts: Counts) -> float | None:
    """One of `RATIOS` from raw counts; None when its denominator is 0."""
    numerator, denominator = RATIOS[name]
    return ratio(counts[numerator], sum(counts[part] for part in denominator))


def ratio(numerator: float, denominator: float) -> float | None:
    """`numerator / denominator`; None when there is nothing to divide by (or the quotient has no float)."""
    quotient = numerator / denominator if denominator > 0 else math.inf
    return quotient if math.isfinite(quotient) else None


def wilson_interval(successes: int, trials: int, z: float = Z_95) -> list[float] | None:
    """[low, high], the 95% score interval of a proportion; None when nothing was tried.

    It stays inside [0, 1] and is sensible for few trials. It takes the trials as independent, which
    tokens of one text are not quite: read it as the least uncertainty there is.
    Source: Wilson 1927, J. Am. Stat. Assoc. 22, 209-212.
    """
    if trials == 0:
        return None
    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half_width = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else max(0.0, middle - half_width)
    high = 1.0 if successes == trials else min(1.0, middle + half_width)
    return [low, high]


def speedup_over_plain(
    mode: str, tokens_per_second: float | None, identity: dict[str, Any] | None
) -> tuple[float, float] | None:
    """What a run's check measured: how many times as fast as plain decoding, and plain decoding's tokens/s.

    Both were unwatched, one right after the other; in older traces the run's own speed is that of the watched run. None
    where nothing was measured, and for a run that is plain decoding itself.
    """
    if identity is None or mode == "plain":
        return None
    plain = identity.get("plain_tokens_per_second")
    speedup = walltime_speedup(identity.get("again_tokens_per_second", tokens_per_second), plain)
    return None if speedup is None else (speedup, plain)


def is_about_equal(speedup: float) -> bool:
    """Whether a speedup that was measured once is too near to 1 to be called faster or slower."""
    return abs(speedup - 1) < NOISE


def walltime_speedup(tokens_per_second: float | None, plain_tokens_per_second: float | None) -> float | None:
    """How many times as fast as plain decoding, both decode only; None when either was not measured."""
    if tokens_per_second is None or plain_tokens_per_second is None:
        return None
    return ratio(tokens_per_second, plain_tokens_per_second)
