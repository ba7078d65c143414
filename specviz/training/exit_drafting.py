"""What exit heads are worth as a drafter (self-speculation): how many of their drafts the target accepts. Counts only:
they are the same on every machine, and speed is not measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from specviz.config import RunSettings
from specviz.drafters.early_exit import EarlyExit
from specviz.early_exit.exit_heads import ExitHeads, PlainHeads
from specviz.engine.lean_model import LeanModel
from specviz.engine.speculative import decode
from specviz.engine.vocabulary import Vocabulary
from specviz.metrics import MetricsFold
from specviz.training.exit_replay import Answer

SETTINGS = RunSettings(drafter="early_exit", num_draft_tokens=4, trace_detail="none")


def draft_with_exits(
    heads: ExitHeads,
    model: LeanModel,
    answers: Sequence[Answer],
    vocabulary: Vocabulary,
    ends: frozenset[int] = frozenset(),
    report: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """The drafter `early_exit` with these heads, and with the plain head over the same cut vocabulary, on the prompts of
    answers and as far as they go.

    Args:
        ends: tokens that end an answer.
    """
    drafters = {
        name: EarlyExit.for_run(model, held, SETTINGS)
        for name, held in (("translators", heads), ("plain", PlainHeads(model, heads.vocab_ids)))
    }
    folds = {name: MetricsFold() for name in drafters}
    identical = dict.fromkeys(drafters, 0)
    for place, answer in enumerate(answers):
        settings = replace(SETTINGS, max_new_tokens=len(answer.ids))
        for done, (name, drafter) in enumerate(drafters.items()):
            report(len(drafters) * place + done, len(drafters) * len(answers))
            for event in decode(model, drafter, answer.prompt, vocabulary, settings, eos_token_ids=ends):
                folds[name].add(event)
            identical[name] += event["token_ids"] == list(answer.ids)
    return {
        "prompts": len(answers),
        "tokens": sum(len(answer.ids) for answer in answers),
        "exit_layer": drafters["translators"].exit_layer,
        "num_layers": model.num_layers,
        "num_draft_tokens": SETTINGS.num_draft_tokens,
        **{name: _counts(folds[name]) | {"identical": identical[name]} for name in drafters},
    }


def _counts(fold: MetricsFold) -> dict[str, Any]:
    metrics = fold.metrics()
    return {
        "rounds": fold.counts["rounds"],
        "committed": fold.counts["committed"],
        "mean_tokens_per_round": metrics["mean_tokens_per_round"],
        "first_judged": next(iter(fold.judged_by_position), 0),
        "first_accepted": next(iter(fold.accepted_by_position), 0),
        "acceptance_at_first": next(iter(metrics["conditional_acceptance_by_position"]), None),
        "accepted": fold.counts["accepted"],
        "drafted": fold.counts["drafted"],
    }
