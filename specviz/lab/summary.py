"""From what every engine made of every prompt to medians, ratios and shares."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from specviz.lab.engines import PLAIN_OF, TRANSFORMERS_ENGINES, Generation
from specviz.metrics import ratio

# Of one engine: for each prompt, in the order of the prompts, one generation a repetition.
Record = Sequence[Sequence[Generation]]


def summarize_engines(records: Mapping[str, Record], categories: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Name -> the engine's figures, over all prompts and by category.

    Args:
        records: engines that went through, all prompts each.
        categories: the category of each prompt.
    """
    return {name: _summarize(name, records, categories) for name in records}


def _summarize(name: str, records: Mapping[str, Record], categories: Sequence[str]) -> dict[str, Any]:
    record, everything = records[name], range(len(categories))
    own_plain = records.get("hf_plain") if name in TRANSFORMERS_ENGINES else None
    speedups = speedups_over(record, records.get("plain"), everything)
    summary = {
        **_figures(record, records.get("plain"), everything),
        "spread": quartiles(_speeds(record, everything)),
        "speedup_spread": quartiles(speedups),
        **_identity(name, records),
        "first_token_seconds": median_or_none([_first_token_seconds(runs) for runs in record]),
        "acceptance_by_position": acceptance_by_position([run for runs in record for run in runs]),
        "tokens": sum(len(runs[0].token_ids) for runs in record),
        "by_category": {
            category: _figures(record, records.get("plain"), [i for i in everything if categories[i] == category])
            for category in dict.fromkeys(categories)
        },
    }
    if name in TRANSFORMERS_ENGINES:
        summary["speedup_over_own_plain"] = median_or_none(speedups_over(record, own_plain, everything))
    return summary


def _identity(name: str, records: Mapping[str, Record]) -> dict[str, Any]:
    """`identical`: share of the prompts whose ids are those of the same engine's plain decoding, where that was measured;
    null with the reason as `identical_why` where it was not. Plain decoding is compared with its own repetitions."""
    plain = PLAIN_OF.get(name)
    if plain is None:
        why = "no plain decoding of this engine is measured beside it"
    elif plain not in records:
        why = f"{plain}, its plain decoding, was not measured"
    elif plain == name and any(len(runs) < 2 for runs in records[name]):
        why = "it is the plain decoding that others are compared with: with --repeat 2 it is compared with itself"
    else:
        return {"identical": identical_share(records[name], records[plain]), "identical_why": None}
    return {"identical": None, "identical_why": why}


def _figures(record: Record, plain: Record | None, indices: Sequence[int]) -> dict[str, Any]:
    return {
        "tokens_per_second": median_or_none(_speeds(record, indices)),
        "speedup_over_plain": median_or_none(speedups_over(record, plain, indices)),
        "mean_tokens_per_round": mean_tokens_per_round([run for i in indices for run in record[i]]),
        "prompts": len(indices),
    }


def speed(runs: Sequence[Generation]) -> float | None:
    """Tokens per second of one prompt: the median over its repetitions."""
    return median_or_none([run.tokens_per_second for run in runs if run.tokens_per_second is not None])


def speedups_over(record: Record, plain: Record | None, indices: Sequence[int]) -> list[float]:
    """Per prompt, this engine's tokens per second / that engine's; prompts on which either has none are left out."""
    if plain is None:
        return []
    pairs = [(speed(record[i]), speed(plain[i])) for i in indices]
    return [mine / other for mine, other in pairs if mine is not None and other is not None]


def identical_share(record: Record, plain: Record) -> float | None:
    """Share of prompts whose ids, in every repetition, are those of plain decoding; None without prompts."""
    same = [
        all(run.token_ids == plain_runs[0].token_ids for run in (*runs, *plain_runs))
        for runs, plain_runs in zip(record, plain, strict=True)
    ]
    return ratio(sum(same), len(same))


def mean_tokens_per_round(runs: Sequence[Generation]) -> float | None:
    """Committed tokens / rounds, both summed over the runs; None where an engine does not tell its rounds."""
    if any(run.rounds is None for run in runs):
        return None
    return ratio(sum(len(run.token_ids) for run in runs), sum(run.rounds for run in runs))


def acceptance_by_position(runs: Sequence[Generation]) -> list[float | None] | None:
    """Of the rounds of all runs that judged draft position i, the share that accepted it; None without drafts.

    Every round of a drafter with a distribution judges position 0, so that the first share is how often its choice
    is the target's; further positions are judged where all before were accepted, with an adaptive k only where the
    drafter was sure of them too.
    """
    drafted = [run for run in runs if run.judged]
    if not drafted:
        return None
    accepted, judged = (
        [sum(column) for column in zip_longest(*counts, fillvalue=0)]
        for counts in ([run.accepted for run in drafted], [run.judged for run in drafted])
    )
    return [ratio(*pair) for pair in zip(accepted, judged, strict=True)]


def quartiles(values: Sequence[float]) -> list[float] | None:
    """[q1, q3]: half of the values lie between them; None without values."""
    if len(values) < 2:
        return [values[0], values[0]] if values else None
    q1, _, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return [q1, q3]


def median_or_none(values: Sequence[float]) -> float | None:
    """The median; None without values."""
    return statistics.median(values) if values else None


def _speeds(record: Record, indices: Sequence[int]) -> list[float]:
    speeds = (speed(record[i]) for i in indices)
    return [each for each in speeds if each is not None]


def _first_token_seconds(runs: Sequence[Generation]) -> float:
    return statistics.median(run.first_token_seconds for run in runs)
