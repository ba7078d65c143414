"""The README of a folder of exit heads: what they are, how they were made, what they are worth."""

from __future__ import annotations

import textwrap
from typing import Any

from specviz.engine.embedded import EMBEDDED_NAME
from specviz.training.exit_frontier import GOAL

MEASURED = {
    "top1": "probability of the first token",
    "gap": "gap between the first two",
    "entropy": "1 - entropy / log(cut)",
    "saturation": "cosine of the states before and after the layer",
}


def exit_card(name: str, target: str, trained: dict[str, Any]) -> str:
    """Markdown.

    Args:
        trained: the `trained` of the facts.
    """
    plan, data = trained["plan"], trained["data"]
    licence = "Apache-2.0, as the target's" if target == EMBEDDED_NAME else "that of the target"
    lines = [
        f"# {name}",
        "",
        f"Translators for {target}, and for nothing else: for each of its layers a map of low rank that foretells what the",
        "last layer would make of a state, so that the target's own norm and output head can read it (the tuned lens,",
        "Belrose et al. 2023, arXiv 2303.08112). With them a token can leave the model early.",
        "",
        "Made by `specviz distill --kind exit_heads`, from text that the target wrote itself.",
        "",
        "| | |",
        "|---|---|",
        f"| Data | {data['positions']:,} tokens of {data['sequences']:,} answers: one in {data['one_in']} of those in the "
        f"first {data['tokens']:,} tokens of the text |",
        f"| Held out | {data['held_out_positions']:,} tokens of {data['held_out_sequences']:,} answers, by a hash of their prompts |",
        f"| Training | closed-form start, then {trained['steps']:,} steps of {plan['positions_per_step']} tokens, all "
        f"layers in each, {plan['epochs']:g} passes, seed {plan['seed']} |",
        f"| Maps | scale * h + expand (reduce h) + rms(h) * bias, rank {plan['rank']}, in int8 |",
        f"| Licence | {licence} |",
        "",
    ]
    if "by_layer" in trained:
        lines += [*_by_layer(trained["by_layer"]), *_frontier(trained)]
    if "real_exits" in trained:
        lines += _real_exits(trained["real_exits"])
    if "drafting" in trained:
        lines += _drafting(trained["drafting"])
    return "\n".join(lines)


def _by_layer(table: dict[str, Any]) -> list[str]:
    return [
        "## By layer",
        "",
        f"On {table['positions']:,} tokens of held-out answers: how often the exit's most probable token is the full model's, and",
        "KL(full model || exit) in nats over the whole vocabulary; plain is the final norm and output head alone.",
        "",
        "| Layer | Agreement | plain | KL | plain |",
        "|---|---|---|---|---|",
        *(
            f"| {row['layer']} | {row['translators']['agreement']:.3f} | {row['plain']['agreement']:.3f} | "
            f"{row['translators']['kl']:.2f} | {row['plain']['kl']:.2f} |"
            for row in table["rows"]
        ),
        "",
    ]


def _frontier(trained: dict[str, Any]) -> list[str]:
    frontier, layers = trained["frontier"], ", ".join(map(str, trained["exit_layers"]))
    lines = [
        "## Layers saved against agreement",
        "",
        f"Exits after layers {layers} (chosen on training text that was kept apart), on {frontier['positions']:,} tokens of held-out",
        "answers, over the full model's own states: each token for itself, as the others had not left early. The heads' own",
        "cost is not in here.",
        "",
        "| Agreement | Layers saved, translators | Threshold | greedy answers | sampled answers | Layers saved, plain head |",
        "|---|---|---|---|---|---|",
    ]
    top1, plain = frontier["translators"]["top1"], frontier["plain"]["top1"]
    for goal, found in top1["for"].items():
        greedy, sampled = (top1[key].get(goal, {}).get("layers_saved") for key in ("for_greedy", "for_sampled"))
        lines.append(
            f"| {float(goal):.0%} | {_percent(found['layers_saved'])} | {found['threshold']:.2f} | {_percent(greedy)} | "
            f"{_percent(sampled)} | {_percent(plain['for'][goal]['layers_saved'])} |"
        )
    lines += [
        "",
        "By the probability of the first token; the threshold is the one that these tokens need. With the threshold that reaches",
        "the same agreement on the text kept apart, which nobody had to see before:",
        "",
        "| Wanted | Threshold | Agreement | Layers saved | Looks a token |",
        "|---|---|---|---|---|",
        *(
            f"| {float(goal):.0%} | {found['threshold']:.3f} | {_percent(found['agreement'])} | "
            f"{_percent(found['layers_saved'])} | {found['looks']:.1f} |"
            for goal, found in trained["at_tuned_thresholds"].items()
        ),
        "",
        "Fewer exit layers cost fewer looks; the best choices, each at its tuned threshold for 90%:",
        "",
        "| Exit layers | Threshold | Agreement | Layers saved | Looks a token |",
        "|---|---|---|---|---|",
        *(
            f"| {', '.join(map(str, found['layers']))} | {found['threshold']:.3f} | {_percent(found['agreement'])} | "
            f"{_percent(found['layers_saved'])} | {found['looks']:.1f} |"
            for found in trained["by_exit_layers"]
        ),
        "",
        "The whole frontier, layers saved at each agreement, by measure:",
        "",
        "| Measure | Heads | " + " | ".join(f"{float(goal):.0%}" for goal in top1["for"]) + " |",
        "|---|---|" + "---|" * len(top1["for"]),
        *(
            f"| {measure}: {MEASURED[measure]} | {heads} | "
            + " | ".join(_percent(found["layers_saved"]) for found in frontier[heads][measure]["for"].values())
            + " |"
            for measure in MEASURED
            for heads in ("translators", "plain")
        ),
        "",
        "At fixed thresholds of the first token's probability:",
        "",
        "| Threshold | Agreement | Layers saved | Looks a token |",
        "|---|---|---|---|",
        *(
            f"| {found['threshold']:g} | {_percent(found['agreement'])} | {_percent(found['layers_saved'])} | {found['looks']:.1f} |"
            for found in top1["at"]
        ),
        "",
    ]
    return lines


def _real_exits(real: dict[str, Any]) -> list[str]:
    answers, rows = real["answers"], real["rows"]
    return [
        "## Real exits",
        "",
        "The tables above know nothing of what a token that left does to those after it: its skipped layers are not run, and",
        "their keys and values are filled in from the state that left, which is not what those layers would have made. So here",
        f"the exits are real, along {answers} held-out greedy answers of the full model ({real['tokens']:,} tokens, at most "
        f"{real['most_tokens']} of each):",
        "the token before is always the full model's. Beside it, as own states, the same tokens measured as in the tables",
        "above: over the full model's own states, all layers run.",
        "",
        "| Threshold | Agreement | Layers saved | Layers a token | own states: agreement | Layers saved | Of the tokens "
        "through all layers, agree |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row['threshold']:g} | {row['agreeing']} of {real['tokens']}: {_percent(row['agreement'])} | "
            f"{_percent(row['layers_saved'])} | {row['layers_per_token']:.1f} of {real['num_layers']} | "
            f"{_percent(row['own_states']['agreement'])} | {_percent(row['own_states']['layers_saved'])} | "
            f"{row['through_all_layers_agreeing']} of {row['through_all_layers']} |"
            for row in rows
        ),
        "",
        _what_it_costs(rows),
        "",
        "A text that goes on from its own tokens is the full model's up to the first that is not:",
        "",
        "| Threshold | Tokens before it departs (median) | Texts that stay equal to their end |",
        "|---|---|---|",
        *(
            f"| {row['threshold']:g} | {row['median_common_prefix']:g} | {row['texts_that_stay_equal']} of {answers} |"
            for row in rows
        ),
        "",
    ]


def _what_it_costs(rows: list[dict[str, Any]]) -> str:
    """Whether the goal is reached with real exits, and where it is not, why."""
    goal = f"{GOAL:.0%}"
    own, real = _most_saved([{**row["own_states"], "row": row} for row in rows]), _most_saved(rows)
    said = []
    if own is not None and (row := own["row"])["agreement"] < GOAL:
        said += [
            f"Over the full model's own states {goal} is reached with {_percent(own['layers_saved'])} fewer layers (threshold "
            f"{row['threshold']:g}); with real exits it is not: {_percent(row['agreement'])} agree there. The filled-in keys "
            "and values hurt the tokens that come later: even of those that ran through all layers, which the full model's "
            "own keys and values would have made right, every one, "
            f"{row['through_all_layers'] - row['through_all_layers_agreeing']} of {row['through_all_layers']} are wrong."
        ]
    found, how = real, f"{goal} is reached"
    if real is None:
        found = max(rows, key=lambda row: row["agreement"])
        how = f"{goal} is not reached at any of these thresholds; {_percent(found['agreement'])} is the most"
    said += [
        f"With real exits {how}, at a threshold of {found['threshold']:g} with {_percent(found['layers_saved'])} fewer layers."
    ]
    return textwrap.fill(" ".join(said), 120)


def _most_saved(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Of the rows that reach the goal, the one that saves most layers."""
    return max((row for row in rows if row["agreement"] >= GOAL), key=lambda row: row["layers_saved"], default=None)


def _drafting(drafting: dict[str, Any]) -> list[str]:
    k, layer, layers = drafting["num_draft_tokens"], drafting["exit_layer"], drafting["num_layers"]
    return [
        "## As a drafter",
        "",
        "Self-speculation (drafter `early_exit`) leaves the text as it is: the other layers verify what the heads draft. Greedy,",
        f"k {k}, drafting with the first {layer} of {layers} layers, on {drafting['prompts']} held-out prompts "
        f"({drafting['tokens']:,} tokens); plain is the",
        "final norm and output head over the same cut vocabulary. These are counts; what they come to in time is not measured here.",
        "",
        "| Heads | First draft token accepted | Draft tokens accepted | Tokens a round | Texts identical to plain decoding |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {row['first_accepted']} of {row['first_judged']}: {_percent(row['acceptance_at_first'])} | "
            f"{row['accepted']} of {row['drafted']} | {row['committed']} in {row['rounds']}: {row['mean_tokens_per_round']:.2f} | "
            f"{row['identical']} of {drafting['prompts']} |"
            for name, row in ((name, drafting[name]) for name in ("translators", "plain"))
        ),
        "",
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
