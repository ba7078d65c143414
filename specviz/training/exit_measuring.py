"""What exit heads are worth on text that they were never trained on: layer by layer, and as a frontier.

All of it over the full model's own states (teacher-forced): what a token that left early does to those after it is
not in here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.early_exit import confidence
from specviz.early_exit.exit_heads import ExitHeads, PlainHeads
from specviz.early_exit.exit_settings import EXIT_MEASURES
from specviz.engine.lean_model import LeanModel
from specviz.training.answer_examples import AnswerExamples, Positions
from specviz.training.exit_frontier import GOAL, choose_layers, frontier, point, summary, threshold_for

THRESHOLDS = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
GOALS = (0.85, 0.9, 0.95, 0.98)  # agreements for which the threshold is looked for
NUMBERS_OF_LAYERS = (1, 2, 3, 5, 7)  # exit layers of which the best choice is told
MOST_LAYERS_CHOSEN, LOOK_COST = 5, 0.1  # of the default; another look has to save more than this share of a layer
FIRST_CHOICE = 0.13  # of the layers: below that none is chosen as an exit
TABLE_POSITIONS, FRONTIER_POSITIONS, TUNE_POSITIONS = 700, 5000, 6000
AT_ONCE = 64  # positions

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Readings:
    """What heads say of some positions, a row for each layer.

    Attributes:
        confidences: measure -> [layers, positions]; of all, higher means surer.
        agrees: [layers, positions], whether the most probable token is the full model's.
    """

    confidences: dict[str, np.ndarray]
    agrees: np.ndarray

    def of(self, layers: Sequence[int], chosen: Sequence[int]) -> Readings:
        """The rows of some of the layers that there are rows of."""
        rows = [list(layers).index(layer) for layer in chosen]
        return Readings({name: values[rows] for name, values in self.confidences.items()}, self.agrees[rows])


def measure_exits(
    heads: ExitHeads,
    model: LeanModel,
    tune: AnswerExamples,
    held_out: AnswerExamples,
    report: Report = lambda done, total: None,
) -> dict[str, Any]:
    """Exit layers chosen on `tune`; a table by layer, and frontiers for all measures, on `held_out`."""
    plain, num_layers = PlainHeads(model, heads.vocab_ids), model.num_layers
    tuned_on, measured, listed = (
        spread(examples, most)
        for examples, most in ((tune, TUNE_POSITIONS), (held_out, FRONTIER_POSITIONS), (held_out, TABLE_POSITIONS))
    )
    counted = _Counted(report, len(tuned_on) + 2 * len(measured) + 2 * len(listed))

    first = max(1, round(FIRST_CHOICE * num_layers))
    candidates = [layer for layer in heads.layers if layer >= first]
    tuned = read(heads, tune, tuned_on, candidates, counted)
    readings = read(heads, held_out, measured, candidates, counted)

    def best(most: int, look_cost: float = 0.0) -> tuple[int, ...]:
        values, agrees = tuned.confidences["top1"], tuned.agrees
        chosen = choose_layers(values, agrees, candidates, num_layers, most, GOAL, look_cost)
        return chosen or tuple(candidates[-1:])

    layers = best(MOST_LAYERS_CHOSEN, LOOK_COST)
    by_head = {
        "translators": readings.of(candidates, layers),
        "plain": read(plain, held_out, measured, layers, counted),
    }
    greedy = greedy_positions(held_out)[measured]
    choices = dict.fromkeys(best(most) for most in NUMBERS_OF_LAYERS)
    return {
        "exit_layers": list(layers),
        "cut_coverage": float(np.isin(held_out.choices, heads.vocab_ids.cpu().numpy()).mean()),
        "by_layer": {"positions": len(listed), "rows": by_layer(heads, plain, model, held_out, listed, counted)},
        "frontier": {"positions": len(measured), "greedy_positions": int(greedy.sum())}
        | {
            name: {measure: _frontier_of(held, measure, layers, num_layers, greedy) for measure in EXIT_MEASURES}
            for name, held in by_head.items()
        },
        "at_tuned_thresholds": {
            f"{goal:g}": _at_tuned(tuned.of(candidates, layers), by_head["translators"], goal, layers, num_layers)
            for goal in GOALS
        },
        "by_exit_layers": [
            {
                "layers": list(chosen),
                **_at_tuned(tuned.of(candidates, chosen), readings.of(candidates, chosen), GOAL, chosen, num_layers),
            }
            for chosen in choices
        ],
    }


def spread(examples: AnswerExamples, most: int) -> np.ndarray:
    """Indices of up to `most` positions, at equal distances."""
    return (
        np.arange(len(examples)) if len(examples) <= most else np.linspace(0, len(examples) - 1, most).astype(np.int64)
    )


def greedy_positions(examples: AnswerExamples) -> np.ndarray:
    """[positions] bool: whether the answer is greedy, all of it."""
    wrong = np.unique(examples.sequences[examples.choices != examples.next_ids])
    return ~np.isin(examples.sequences, wrong)


def read(
    heads: ExitHeads,
    examples: AnswerExamples,
    indices: np.ndarray,
    layers: Sequence[int],
    counted: Callable[[int], None] = lambda positions: None,
) -> Readings:
    """Confidences and choices at some layers, both of the cut vocabulary, as in a run."""
    shape = (len(layers), len(indices))
    confidences = {name: np.zeros(shape, np.float32) for name in EXIT_MEASURES}
    agrees = np.zeros(shape, bool)
    ids = heads.vocab_ids.cpu()
    for start in range(0, len(indices), AT_ONCE):
        positions = examples.gather(indices[start : start + AT_ONCE])
        held = slice(start, start + len(positions.choices))
        for row, layer in enumerate(layers):
            states = positions.states[layer - 1]
            logits = heads.cut_logits(layer, states)
            confidences["top1"][row, held] = confidence.top1(logits)
            confidences["gap"][row, held] = confidence.gap(logits)
            confidences["entropy"][row, held] = 1 - confidence.entropy(logits) / np.log(max(2, len(ids)))
            if layer > 1:
                confidences["saturation"][row, held] = confidence.saturation(states, positions.states[layer - 2])
            agrees[row, held] = ids[logits.argmax(-1)] == positions.choices
        counted(len(positions.choices))
    return Readings(confidences, agrees)


def by_layer(
    heads: ExitHeads,
    plain: ExitHeads,
    model: LeanModel,
    examples: AnswerExamples,
    indices: np.ndarray,
    counted: Callable[[int], None] = lambda positions: None,
) -> list[dict[str, Any]]:
    """Agreement and KL(full model || exit) over the whole vocabulary, at every layer that can be read out."""
    sums = np.zeros((2, len(heads.layers), 2))
    for start in range(0, len(indices), AT_ONCE):
        positions = examples.gather(indices[start : start + AT_ONCE])
        log_probs = model.read_out(last_states(positions, model)).log_softmax(-1)
        probs = log_probs.exp()
        for place, held in enumerate((heads, plain)):
            for row, layer in enumerate(heads.layers):
                logits = held.full_logits(layer, positions.states[layer - 1]).log_softmax(-1)
                agreed = (logits.argmax(-1) == positions.choices).sum()
                sums[place, row] += float(agreed), float((probs * (log_probs - logits)).sum())
            counted(len(positions.choices))
    means = sums / max(1, len(indices))
    return [
        {
            "layer": layer,
            **{
                name: {"agreement": round(means[place, row, 0], 4), "kl": round(means[place, row, 1], 4)}
                for place, name in enumerate(("translators", "plain"))
            },
        }
        for row, layer in enumerate(heads.layers)
    ]


def last_states(positions: Positions, model: LeanModel) -> Tensor:
    """[positions, hidden] the last layer's, up to their size: the final norm's weights are taken out again."""
    norm = torch.from_numpy(model.weights.feature_norm)
    return positions.head_inputs / torch.where(norm == 0, torch.ones_like(norm), norm)


def _frontier_of(
    readings: Readings, measure: str, layers: Sequence[int], num_layers: int, greedy: np.ndarray
) -> dict[str, Any]:
    """At fixed thresholds, and at those that these very tokens would need; greedy answers once more by themselves."""
    values, agrees = readings.confidences[measure], readings.agrees

    def at_goals(kept: np.ndarray) -> dict[str, Any]:
        if not kept.any():
            return {}
        held, right = values[:, kept], agrees[:, kept]
        return {
            f"{goal:g}": point(held, right, layers, num_layers, threshold_for(held, right, num_layers, goal)).to_dict()
            for goal in GOALS
        }

    fixed = summary(frontier(values, agrees, layers, num_layers, THRESHOLDS))
    everything = np.ones(len(greedy), bool)
    return {"at": fixed, "for": at_goals(everything), "for_greedy": at_goals(greedy), "for_sampled": at_goals(~greedy)}


def _at_tuned(
    tuned: Readings, readings: Readings, goal: float, layers: Sequence[int], num_layers: int
) -> dict[str, float]:
    """What readings come to at the threshold that reaches the goal where it was tuned, by the first token's probability."""
    threshold = threshold_for(tuned.confidences["top1"], tuned.agrees, num_layers, goal)
    return point(readings.confidences["top1"], readings.agrees, layers, num_layers, threshold).to_dict()


class _Counted:
    """Adds up, and reports."""

    def __init__(self, report: Report, total: int) -> None:
        self._report, self._total, self._done = report, total, 0

    def __call__(self, positions: int) -> None:
        self._done += positions
        self._report(self._done, self._total)
