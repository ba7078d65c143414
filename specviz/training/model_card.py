"""The README of a draft folder: what it is, how it was made, what it is worth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specviz.engine.embedded import EMBEDDED_NAME

WHAT_IT_IS = {
    "draft_head": "A draft head: one layer over the target's own states and the next token's embedding (as in EAGLE-3).",
    "draft_model": "A draft model: a small causal language model of the target's family, some of its layers healed.",
}


def model_card(name: str, kind: str, target: str, trained: dict[str, Any], bench: dict[str, Any] | None = None) -> str:
    """Markdown.

    Args:
        trained: the `trained` of the draft's facts.
        bench: the JSON object of `python -m specviz bench` over a suite, for a table by category.
    """
    plan, data = trained["plan"], trained["data"]
    licence = "Apache-2.0, as the target's" if target == EMBEDDED_NAME else "that of the target"
    earlier = list(_earlier(trained))
    lines = [
        f"# {name}",
        "",
        f"{WHAT_IT_IS[kind]} It drafts for {target} and for nothing else: it has no embedding and no output head of its",
        "own, and shares the target's, cut to the tokens that the target really uses.",
        "",
        "Made by `specviz distill`; the text it learnt from was written by the target, prompts included.",
        "",
        "| | |",
        "|---|---|",
        f"| Data | {data['tokens']:,} tokens in {data['sequences']:,} sequences{_after(data)}, seed {data['seed']} |",
        f"| Held out | {data['held_out_sequences']:,} sequences, by a hash of their prompts |",
        f"| Training | {trained['steps']:,} steps of {plan['tokens_per_batch']:,} tokens, {_passes(plan)}, seed {plan['seed']} |",
        *(f"| Went on from | {line} |" for line in earlier),
        f"| Parameters | {trained['parameters']:,}, in int8 |",
        f"| Output head | {_output_head(trained['cut'])} |",
        f"| Licence | {licence} |",
        "",
    ]
    if on_text := trained.get("on_text"):
        lines += [
            f"On the answers of the {on_text['sequences']:,} held-out sequences (greedy and sampled), fed the target's own tokens:",
            "",
            "| Draft position | Greedy agreement | Overlap, sum of min(target, draft) |",
            "|---|---|---|",
        ]
        lines += [
            f"| {place} | {row['agreement']:.3f} | {row['overlap']:.3f} |"
            for place, row in enumerate(on_text["by_position"], 1)
        ]
        lines.append("")
    if on_suite := trained.get("on_suite"):
        agreed = ", ".join(f"{row['agreement']:.3f}" for row in on_suite["by_position"])
        lines += [
            f"Along plain decoding's greedy answers to {on_suite['sequences']:,} prompts that were only measured on, "
            f"{on_suite['by_position'][0]['tokens']:,} tokens: greedy agreement {agreed} at draft positions 1 to {len(on_suite['by_position'])}.",
            "",
        ]
    if engine := trained.get("in_engine"):
        accepted = ", ".join(f"{rate:.2f}" for rate in engine["acceptance_by_position"] if rate is not None)
        lines += [
            f"In the engine, greedy, {engine['prompts']} held-out prompts, {engine['max_new_tokens']} new tokens, "
            f"k {engine['num_draft_tokens']}: {engine['mean_tokens_per_round']:.2f} tokens a round, accepted at each",
            f"position (of those that were reached) {accepted}; {_times(engine['speedup_over_plain'])} of plain decoding's "
            f"speed (median of ratios by prompt), {_percent(engine['identical'])} of the answers identical to it.",
            "",
        ]
    if bench and (row := bench["engines"].get(kind)):
        lines += [
            f"By category, from `specviz bench` ({bench['setting']['prompts']} prompts, {bench['setting']['max_new_tokens']} new "
            "tokens, greedy; speeds are medians of ratios by prompt to plain decoding in the same run):",
            "",
            "| Category | Speed over plain | Tokens a round |",
            "|---|---|---|",
            f"| all | {_times(row['speedup_over_plain'])} | {row['mean_tokens_per_round']:.2f} |",
        ]
        lines += [
            f"| {category} | {_times(part['speedup_over_plain'])} | {part['mean_tokens_per_round']:.2f} |"
            for category, part in row["by_category"].items()
        ]
        lines.append("")
    return "\n".join(lines)


def _output_head(cut: dict[str, Any]) -> str:
    said = f"{cut['tokens']:,} of {cut['of']:,} tokens; they are {_percent(cut['coverage'])} of the held-out answers"
    with_context = cut.get("coverage_with_context", cut["coverage"])
    if with_context == cut["coverage"]:
        return said
    return f"{said}, {_percent(with_context)} with those that stand earlier in the text, which the draft can say too"


def _earlier(trained: dict[str, Any]) -> Iterator[str]:
    """The trainings that this one went on from, the latest first."""
    while start := trained.get("started_from"):
        said = [f"{start['name']} (weights {start['weights_sha256'][:12]})"]
        if {"data", "plan", "steps"} <= start.keys():
            data, plan = start["data"], start["plan"]
            said.append(
                f"{start['steps']:,} steps of {plan['tokens_per_batch']:,} tokens, {_passes(plan)} over {data['tokens']:,} tokens{_after(data)}"
            )
        yield ": ".join(said)
        trained = start


def _after(data: dict[str, Any]) -> str:
    return f", after the first {data['after']:,}" if data.get("after") else ""


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _passes(plan: dict[str, Any]) -> str:
    return "1 pass" if plan["epochs"] == 1 else f"{plan['epochs']:g} passes"
