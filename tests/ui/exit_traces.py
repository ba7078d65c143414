"""Hand-made early-exit runs for the page's tests: valid events of a map run and of a timed run, without a model."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specviz.ui.exit_series import part_mark, series_mark
from tests.ui.fake_runs import drafted, extra, finished, prefill, round_event, started

NUM_LAYERS = 30
EXIT_LAYERS = (10, 14, 18, 21, 24, 26, 28)
CUT = 8192
WORDS = (
    "The", " sea", " is", " a", " mirror", " of", " the", " sky", ",", "\n", "It", " holds", " its", " breath", " and",
    " waits", " for", " morning", ".", " Waves", " come", " home", " like", " old", " friends", " who", " never", " left",
    ";", " salt", " wind", " sings",
)  # fmt: skip
WRONG = (" the", " and", ",", " of", " to", " in", " that", " was")


def exit_info(run: str, threshold: float | None = 0.6, measure: str = "top1", num_layers: int = NUM_LAYERS) -> dict:
    """What `run_started.early_exit` says."""
    layers = [layer for layer in EXIT_LAYERS if layer < num_layers]
    return {
        "run": run, "measure": measure, "threshold": threshold, "threshold_decay": 0.0, "min_layer": layers[0],
        "exit_layers": layers,
        "heads": {"kind": "translators", "name": "made-up", "cut_vocab_size": CUT, "num_params": 1000},
    }  # fmt: skip


def layer_readings(index: int, dice: random.Random, num_layers: int = NUM_LAYERS) -> dict[str, Any]:
    """What every layer says at one token: confidences that rise with depth, ids that settle somewhere."""
    settled = dice.choice((8, 12, 16, 19, 22, 25, 27, 29))
    word, steep = WORDS[index % len(WORDS)], dice.uniform(0.25, 0.6)
    top1, gap, entropy, saturation, ids, texts = [], [], [], [], [], []
    for layer in range(1, num_layers + 1):
        depth = layer - settled
        sure = 1 / (1 + math.exp(-steep * depth))
        prob = min(0.9999, max(0.01, 0.05 + 0.92 * sure + dice.uniform(-0.05, 0.03)))
        is_right = layer == num_layers or depth >= 0 or dice.random() < 0.1
        top1.append(round(prob, 4))
        gap.append(round(prob * prob, 4))
        entropy.append(round((1 - prob) * math.log(CUT), 4))
        saturation.append(round(min(0.999, 0.6 + 0.38 * sure), 4))
        ids.append(1000 + index % len(WORDS) if is_right else 2000 + (index + layer) % len(WRONG))
        texts.append(word if is_right else WRONG[(index + layer) % len(WRONG)])
    measures = {"top1": top1, "gap": gap, "entropy": entropy, "saturation": saturation}
    return {"measures": measures, "ids": ids, "texts": texts}


def token_round(number: int, length: int, token: dict[str, Any], seconds: float, **more: Any) -> dict[str, Any]:
    """One token as a round."""
    after = length
    return {
        "type": "round", "round": number, "t": 0.0, "draft": [], "draft_stop": None,
        "extra": {**token, "kind": "plain", "target_prob": 0.7, "target_top": None, "residual_top": None, "u": None},
        "committed": [token["id"]],
        "cache": {"target": {"before": length - 1, "peak": after, "after": after, "bytes": after * 23_040}, "draft": None},
        "seconds": {"draft": 0.0, "verify": seconds * 0.94, "other": seconds * 0.06},
        **more,
    }  # fmt: skip


def map_run(num_tokens: int = 60, seed: int = 0, prompt: str = "Write about the sea") -> list[dict[str, Any]]:
    """A full-depth run with every layer read out."""
    dice, rounds = random.Random(seed), []
    for index in range(num_tokens):
        readings = layer_readings(index, dice)
        token = {"id": readings["ids"][-1], "text": readings["texts"][-1]}
        exit_ = {"layer": NUM_LAYERS, "confidences": [], "threshold": 0.6, "head_seconds": 0.05}
        rounds.append(token_round(index + 1, 9 + index, token, 0.12, exit=exit_, map=readings))
    return in_time([_started("map", prompt), prefill(has_draft_cache=False), *rounds, _finished(rounds)])


def timed_run(
    num_tokens: int = 60, seed: int = 0, threshold: float | None = 0.6, prompt: str = "Write about the sea"
) -> list[dict[str, Any]]:
    """A run whose exits are real; its text is the map run's up to where an early layer said something else."""
    dice, rounds, full = random.Random(seed), [], []
    for index in range(num_tokens):
        readings = layer_readings(index, dice)
        full.append(readings["ids"][-1])
        layer, confidences = exit_of(readings, threshold)
        token = {"id": readings["ids"][layer - 1], "text": readings["texts"][layer - 1]}
        exit_ = {"layer": layer, "confidences": confidences, "threshold": threshold, "head_seconds": 0.004}
        rounds.append(token_round(index + 1, 9 + index, token, 0.012 + 0.0014 * layer, exit=exit_))
    ids = [event["extra"]["id"] for event in rounds]
    same = [a == b for a, b in zip(ids, full, strict=True)]
    first = same.index(False) if False in same else None
    identity: dict[str, Any] = {
        "type": "identity", "against": "plain", "identical": first is None, "plain_tokens_per_second": 18.0,
        "same_share": sum(same) / len(same), "common_prefix": len(same) if first is None else first,
    }  # fmt: skip
    if first is not None:
        identity["first_difference"] = {
            "position": first, "ids": [full[first], ids[first]],
            "texts": [WORDS[first % len(WORDS)], rounds[first]["extra"]["text"]], "top2_gap": 0.3, "dtype": "float32",
        }  # fmt: skip
    run = [_started("timed", prompt, threshold), prefill(has_draft_cache=False), *rounds, _finished(rounds), identity]
    return in_time(run)


def exit_of(readings: dict[str, Any], threshold: float | None) -> tuple[int, list[float]]:
    """(layer, confidences of the exit layers that were looked at) by top-1 probability."""
    looked_at: list[float] = []
    for layer in EXIT_LAYERS:
        looked_at.append(readings["measures"]["top1"][layer - 1])
        if threshold is not None and looked_at[-1] >= threshold:
            return layer, looked_at
    return NUM_LAYERS, looked_at


def plain_run(num_tokens: int = 60, seed: int = 0, prompt: str = "Write about the sea") -> list[dict[str, Any]]:
    """The map run's text, decoded plainly."""
    rounds = [
        token_round(number, 8 + number, {"id": event["extra"]["id"], "text": event["extra"]["text"]}, 0.055)
        for number, event in enumerate(map_run(num_tokens, seed, prompt)[2:-1], start=1)
    ]
    run = started(prompt, drafter="none", mode="plain", run_id="fake-plain")
    run["target"]["num_layers"] = NUM_LAYERS
    return in_time([run, prefill(has_draft_cache=False), *rounds, finished(rounds)])


def speculative_run(
    drafter: str, num_tokens: int = 60, seed: int = 0, prompt: str = "Write about the sea", **drafter_info: Any
) -> list[dict[str, Any]]:
    """The map run's text, speculated: rounds of three accepted drafts and a bonus."""
    tokens = [event["extra"] for event in map_run(num_tokens, seed, prompt)[2:-1]]
    rounds, length = [], 9
    for first in range(0, num_tokens, 4):
        *draft, last = [(token["id"], token["text"]) for token in tokens[first : first + 4]]
        kind = "bonus" if draft else "plain"
        event = round_event(len(rounds) + 1, length, [drafted(*one, "accepted") for one in draft], extra(kind, *last))
        length += len(event["committed"])
        rounds.append(event)
    run = started(prompt, drafter=drafter, run_id=f"fake-{drafter}")
    run["target"]["num_layers"] = NUM_LAYERS
    run["drafter"] |= drafter_info
    return in_time([run, prefill(), *rounds, finished(rounds)])


def exit_part(request: Any, role: str) -> list[dict[str, Any]]:
    """One run of a series, as the page's factory is asked for it."""
    threshold = None if request.exits.threshold == "never" else request.exits.threshold
    events = part_of(role, min(request.settings.max_new_tokens, 60), threshold, request.prompt)
    if "early_exit" in events[0]:
        events[0]["early_exit"]["measure"] = request.exits.measure
    return events


def part_of(
    role: str, num_tokens: int = 60, threshold: float | None = 0.6, prompt: str = "Write about the sea"
) -> list[dict[str, Any]]:
    """One run of a series by its role."""
    if role == "map":
        return map_run(num_tokens, prompt=prompt)
    if role == "plain":
        return plain_run(num_tokens, prompt=prompt)
    if role == "self_speculation":
        info = {"exit_layer": 18, "num_target_layers": NUM_LAYERS, "exit_heads": "translators"}
        return speculative_run("early_exit", num_tokens, prompt=prompt, **info)
    if role == "drafted":
        return speculative_run("draft_head", num_tokens, prompt=prompt)
    timed = timed_run(num_tokens, threshold=threshold, prompt=prompt)
    return timed if role in ("timed", "sweep") else timed[:-1]


def series(name: str, roles: Sequence[str], **how: Any) -> list[dict[str, Any]]:
    """A whole series with its marks."""
    parts = [[part_mark(role), *part_of(role, **how)] for role in roles]
    return [series_mark(name, roles, "embedded"), *(event for part in parts for event in part)]


def write_recorded(folder: Path, num_tokens: int = 40) -> None:
    """A recorded series as its files."""
    names = (
        "1-map",
        "2-timed",
        "3-beside-plain",
        "4-beside-early_exit",
        "5-beside-self_speculation",
        "6-beside-drafted",
    )
    for name in names:
        lines = [json.dumps(event) for event in part_of(name.split("-")[-1], num_tokens)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def in_time(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events with ends that follow from their seconds."""
    clock = 0.0
    for event in events[1:]:
        if event["type"] in ("prefill", "round"):
            clock += sum(event["seconds"].values())
        event["t"] = clock
    return events


def _started(run: str, prompt: str, threshold: float | None = 0.6) -> dict[str, Any]:
    event = started(
        prompt, drafter="none", mode="early_exit", run_id=f"fake-{run}", early_exit=exit_info(run, threshold)
    )
    event["target"]["num_layers"] = NUM_LAYERS
    return event


def _finished(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    layers = [event["exit"]["layer"] for event in rounds]
    mean = sum(layers) / len(layers) if layers else None
    metrics = {
        "mean_layers_per_token": mean, "layers_saved": None if mean is None else 1 - mean / NUM_LAYERS,
        "exit_counts": {str(layer): layers.count(layer) for layer in sorted(set(layers))},
    }  # fmt: skip
    return {**finished(rounds), "metrics": metrics}
