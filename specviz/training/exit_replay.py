"""What exits come to when they are real: the layers behind one are not run, and their keys and values are filled in
from the state that left (`Onward.LEAVE`), so that all later tokens attend to them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from specviz.early_exit import confidence
from specviz.early_exit.exit_heads import ExitHeads
from specviz.engine.layerwise import Onward
from specviz.engine.lean_model import LeanModel

THRESHOLDS = (0.5, 0.65, 0.8, 0.9)
MOST_ANSWERS, MOST_TOKENS = 10, 48


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy answer of the target: its prompt's ids, and its own."""

    prompt: Sequence[int]
    ids: Sequence[int]


def replay(
    heads: ExitHeads,
    model: LeanModel,
    answers: Sequence[Answer],
    layers: Sequence[int],
    counted: Callable[[int], None] = lambda tokens: None,
) -> dict[str, Any]:
    """For each of `THRESHOLDS` of the first token's probability: agreement and layers saved along the target's own
    text, and how far a text that goes on from its own tokens stays the target's."""
    rows = []
    for threshold in THRESHOLDS:
        along = [_walk(heads, model, answer, layers, threshold, is_free=False) for answer in answers]
        free = [_walk(heads, model, answer, layers, threshold, is_free=True) for answer in answers]
        said = np.concatenate([same for same, _ in along])
        run = np.concatenate([used for _, used in along])
        free_run = np.concatenate([used for _, used in free])
        rows.append(
            {
                "threshold": threshold,
                "agreement": round(float(said.mean()), 4),
                "layers_saved": round(1 - float(run.mean()) / model.num_layers, 4),
                "median_common_prefix": statistics.median(_prefix(same) for same, _ in free),
                "free_layers_saved": round(1 - float(free_run.mean()) / model.num_layers, 4),
            }
        )
        counted(2 * len(said))
    return {"answers": len(answers), "tokens": sum(len(answer.ids) for answer in answers), "rows": rows}


@torch.no_grad()
def _walk(
    heads: ExitHeads, model: LeanModel, answer: Answer, layers: Sequence[int], threshold: float, *, is_free: bool
) -> tuple[np.ndarray, np.ndarray]:
    """([tokens] whether what is said is the answer's token, [tokens] layers that were run)."""
    cache, ids = model.new_cache(), heads.vocab_ids
    model.forward(list(answer.prompt[:-1]), cache, num_logits=0)
    fed = answer.prompt[-1]
    same, used = [], []
    for expected in answer.ids:
        chosen: list[int] = []

        def after_layer(layer: int, states: torch.Tensor, chosen: list[int] = chosen) -> Onward:
            logits = heads.cut_logits(layer, states)
            if float(confidence.top1(logits)) < threshold:
                return Onward.NEXT
            chosen.append(int(ids[logits.argmax()]))
            return Onward.LEAVE

        ended = model.forward_by_layer([fed], cache, after_layer, look_after=frozenset(layers))
        said = chosen[0] if chosen else int(model.read_out(ended.states).argmax())
        same.append(said == expected)
        used.append(ended.layer)
        fed = said if is_free else int(expected)
    return np.array(same), np.array(used)


def _prefix(same: np.ndarray) -> int:
    return len(same) if same.all() else int(np.argmin(same))
