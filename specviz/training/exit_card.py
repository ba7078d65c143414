"""The README of a folder of exit heads: what they are, how they were made, what they are worth."""

from __future__ import annotations

from typing import Any

from specviz.engine.embedded import EMBEDDED_NAME

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
    return [
        "## Real exits",
        "",
        "The tables above know nothing of what a token that left does to those after it: the keys and values of its skipped",
        "layers are filled in from the state that left, which is not what those layers would have made. So with exits that are",
        f"real, over {real['answers']} held-out greedy answers of the full model ({real['tokens']:,} tokens): along the full model's own",
        "text, and then for a text that goes on from its own tokens, how many of them are the full model's before the first",
        "that is not.",
        "",
        "| Threshold | Agreement along the text | Layers saved | Own text: tokens before it departs (median) | Layers saved |",
        "|---|---|---|---|---|",
        *(
            f"| {row['threshold']:g} | {_percent(row['agreement'])} | {_percent(row['layers_saved'])} | "
            f"{row['median_common_prefix']:g} | {_percent(row['free_layers_saved'])} |"
            for row in real["rows"]
        ),
        "",
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
