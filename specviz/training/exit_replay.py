"""What exits come to when they are real: the layers behind one are not run, and their keys and values are filled in
from the state that left (`Onward.LEAVE`), so that all later tokens attend to them.

Along the target's own greedy text, whatever is said. Up to its first other token a text that goes on from its own
tokens is this one, so where that text departs is known as well.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.early_exit import confidence
from specviz.early_exit.exit_heads import ExitHeads
from specviz.early_exit.exit_plan import ExitPlan
from specviz.early_exit.exit_settings import ExitSettings
from specviz.early_exit.token_look import TokenLook
from specviz.engine.language_model import KVCache
from specviz.engine.layerwise import Onward
from specviz.engine.lean_model import LeanModel
from specviz.training.exit_frontier import point

THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the first token's probability
MOST_TOKENS = 48  # of an answer


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy answer of the target: its prompt's ids, and its own."""

    prompt: Sequence[int]
    ids: Sequence[int]

    @property
    def fed(self) -> list[int]:
        """The token before each of the answer's."""
        return [self.prompt[-1], *self.ids[:-1]]


@dataclass(frozen=True, slots=True)
class Walk:
    """One answer, token by token.

    Attributes:
        same: [tokens] whether what is said is the answer's token.
        layers: [tokens] that were run.
        looks: [tokens] exit heads that were asked.
    """

    same: np.ndarray
    layers: np.ndarray
    looks: np.ndarray

    @property
    def common_prefix(self) -> int:
        """Tokens before the first that is not the answer's."""
        return len(self.same) if self.same.all() else int(np.argmin(self.same))


def replay(
    heads: ExitHeads,
    model: LeanModel,
    answers: Sequence[Answer],
    layers: Sequence[int],
    report: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """A row for each of `THRESHOLDS`, and beside it what the same tokens would come to over the full model's own states."""
    walks: dict[float, list[Walk]] = {threshold: [] for threshold in THRESHOLDS}
    own: list[tuple[np.ndarray, np.ndarray]] = []
    for place, answer in enumerate(answers):
        cache, start = model.new_cache(), len(answer.prompt) - 1
        model.forward(list(answer.prompt[:-1]), cache, num_logits=0)
        own.append(_own_states(heads, model, answer, cache, layers))
        for done, threshold in enumerate(THRESHOLDS):
            report(place * len(THRESHOLDS) + done, len(answers) * len(THRESHOLDS))
            cache.truncate(start)
            plan = ExitPlan.of(ExitSettings("top1", threshold, exit_layers=tuple(layers)), heads, model, MOST_TOKENS)
            walks[threshold].append(_walk(plan, model, answer, cache))
    confidences, agrees = (np.concatenate(parts, axis=1) for parts in zip(*own, strict=True))
    return {
        "answers": len(answers),
        "tokens": sum(len(answer.ids) for answer in answers),
        "most_tokens": MOST_TOKENS,
        "num_layers": model.num_layers,
        "rows": [
            _row(threshold, walked, model.num_layers)
            | {"own_states": _over_own_states(confidences, agrees, layers, model.num_layers, threshold)}
            for threshold, walked in walks.items()
        ],
    }


def _row(threshold: float, walks: Sequence[Walk], num_layers: int) -> dict[str, Any]:
    same, layers, looks = (np.concatenate([getattr(walk, name) for walk in walks]) for name in Walk.__slots__)
    whole = layers == num_layers
    return {
        "threshold": threshold,
        "agreeing": int(same.sum()),
        "agreement": round(float(same.mean()), 4),
        "layers_per_token": round(float(layers.mean()), 2),
        "layers_saved": round(1 - float(layers.mean()) / num_layers, 4),
        "looks": round(float(looks.mean()), 4),
        "through_all_layers": int(whole.sum()),
        "through_all_layers_agreeing": int(same[whole].sum()),
        "median_common_prefix": float(statistics.median(walk.common_prefix for walk in walks)),
        "texts_that_stay_equal": sum(bool(walk.same.all()) for walk in walks),
    }


def _over_own_states(
    confidences: np.ndarray, agrees: np.ndarray, layers: Sequence[int], num_layers: int, threshold: float
) -> dict[str, float]:
    found = point(confidences, agrees, layers, num_layers, threshold)
    return {"agreement": round(float(found.agreement), 4), "layers_saved": round(float(found.layers_saved), 4)}


@torch.no_grad()
def _walk(plan: ExitPlan, model: LeanModel, answer: Answer, cache: KVCache) -> Walk:
    """As the early-exit decoder goes, but that the answer's token is fed, whatever was said."""
    same, layers, looks = [], [], []
    for index, (fed, expected) in enumerate(zip(answer.fed, answer.ids, strict=True)):
        look = TokenLook(plan, plan.threshold_at(index), model.synchronize)
        ended = model.forward_by_layer([fed], cache, look.after_layer, look_after=look.layers)
        if ended.layer < plan.num_layers:
            said = int(plan.heads.vocab_ids[look.cut_logits_of(ended).argmax()])
        else:
            said = int(model.read_out(ended.states).argmax())
        same.append(said == expected)
        layers.append(ended.layer)
        looks.append(len(look.confidences))
    return Walk(np.array(same), np.array(layers), np.array(looks))


@torch.no_grad()
def _own_states(
    heads: ExitHeads, model: LeanModel, answer: Answer, cache: KVCache, layers: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """([looks, tokens] confidences, [looks, tokens] whether they are of the answer's token), all layers run."""
    confidences, agrees, expected = [], [], torch.tensor(answer.ids)

    def watch(layer: int, states: Tensor) -> Onward:
        logits = heads.cut_logits(layer, states)
        confidences.append(confidence.top1(logits).numpy())
        agrees.append((heads.vocab_ids[logits.argmax(-1)] == expected).numpy())
        return Onward.NEXT

    model.forward_by_layer(answer.fed, cache, watch, look_after=frozenset(layers))
    return np.array(confidences), np.array(agrees)
