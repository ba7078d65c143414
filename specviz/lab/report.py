"""The figures of a bench as tables for a terminal: ratios first, each with what it is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from specviz.trace.terminal import PipeFriendlyConsole

NOTHING = "-"


def print_report(result: dict[str, Any]) -> None:
    """Print everything that `run_bench` found."""
    console = PipeFriendlyConsole(highlight=False, markup=False, emoji=False)
    setting = result["setting"]
    console.print(
        f"{setting['prompts']} prompts (median {setting['median_prompt_tokens']:.0f} tokens), up to "
        f"{setting['max_new_tokens']} new tokens each, greedy; decode only, prefill apart; medians and quartiles over "
        "the prompts; measured."
    )
    for table in (_engines(result), _categories(result), _predictions(result)):
        if table.row_count:
            console.print()
            console.print(table)
    for line in (*_cost_lines(result["costs"]), *_perplexity_lines(result.get("perplexity"))):
        console.print(line)
    for name, why in result["reasons"].items():
        console.print(f"{name}: {why}")


def _engines(result: dict[str, Any]) -> Table:
    table = _table(
        "engine", "x our\nplain", "q1-q3", "x own\nplain", "tokens/s", "q1-q3", "tokens\n/round", "same\nids"
    )
    for name, engine in _measured(result):
        table.add_row(
            name,
            _times(engine["speedup_over_plain"]),
            _range(engine["speedup_spread"], "{:.2f}"),
            _times(engine.get("speedup_over_own_plain")),
            _number(engine["tokens_per_second"], "{:.1f}"),
            _range(engine["spread"], "{:.0f}"),
            _number(engine["mean_tokens_per_round"], "{:.2f}"),
            _share(engine["identical"], engine["prompts"]),
        )
    return table


def _categories(result: dict[str, Any]) -> Table:
    measured = _measured(result)
    categories = list(measured[0][1]["by_category"]) if measured else []
    table = _table("x our plain, by category", *categories)
    for name, engine in measured:
        if engine["speedup_over_plain"] is not None:
            table.add_row(
                name, *(_times(engine["by_category"][category]["speedup_over_plain"]) for category in categories)
            )
    return table


def _predictions(result: dict[str, Any]) -> Table:
    table = _table("speedup", "predicted", "measured", "difference", "tokens\n/round", "draft steps\n/round", "c")
    for name, each in result["prediction"].items():
        table.add_row(
            name,
            _times(each["predicted"]),
            _times(each["measured"]),
            _number(each["difference"], "{:+.0%}"),
            _number(each["mean_tokens_per_round"], "{:.2f}"),
            _number(each["mean_draft_steps"], "{:.2f}"),
            _number(each["c"], "{:.3f}"),
        )
    return table


def _cost_lines(costs: dict[str, Any]) -> list[str]:
    if costs["v"] is None:
        return []
    ratios = "  ".join(f"{n}: {ratio:.2f}" for n, ratio in enumerate(costs["v"], start=1))
    overhead = "not measured (nothing was drafted)" if costs["overhead"] is None else f"{costs['overhead']:.1%}"
    return [
        "",
        f"A one-token target pass takes {1000 * costs['target_pass_seconds']:.1f} ms after {costs['context_tokens']} "
        f"tokens (median of {costs['repetitions']} repetitions, measured). In such passes:",
        f"  v, a pass over n tokens: {ratios}",
        f"  the rest of a round that drafts: {overhead}; of a plain one: {costs['plain_overhead']:.1%}",
    ]


def _perplexity_lines(perplexity: dict[str, Any] | None) -> list[str]:
    if perplexity is None:
        return []
    parts = [
        f"{name} {_number(perplexity[key], '{:.3f}')}"
        for key, name in (("ours", "ours"), ("hf", "transformers"), ("reference", "float32"))
    ]
    counted = f"{perplexity['tokens']} tokens of {perplexity['texts']} texts"
    return ["", f"Perplexity: {', '.join(parts)} (over {counted}, measured)."]


def _measured(result: dict[str, Any]) -> Sequence[tuple[str, dict[str, Any]]]:
    return [(name, engine) for name, engine in result["engines"].items() if engine is not None]


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _times(value: float | None) -> str:
    return _number(value, "{:.2f}x")


def _number(value: float | None, pattern: str) -> str:
    return NOTHING if value is None else pattern.format(value)


def _range(values: Sequence[float] | None, pattern: str) -> str:
    return NOTHING if values is None else f"{pattern.format(values[0])}-{pattern.format(values[1])}"


def _share(share: float | None, total: int) -> str:
    return NOTHING if share is None else f"{round(share * total)}/{total}"
