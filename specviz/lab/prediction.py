"""The speedup that the measured costs lead one to expect, beside the one that was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from specviz.lab.costs import Costs
from specviz.lab.engines import Generation
from specviz.metrics import ratio


def expected_speedup(drafter: str, generation: Generation, costs: Costs) -> float | None:
    """Times as fast as plain decoding: tau * (1 + o_plain) / (k*c + v + o), for the drafts that were really made.

    `theory.expected_speedup_measured` with the run's own tau (tokens per round) and k (draft steps per round)
    in place of those that alpha leads one to expect; v and o are means over the run's rounds, by how much each
    verified. o_plain stands for what a round of plain decoding takes beside its pass. Written for the whole
    run, that is, with numerator and denominator times the number of rounds. A drafter that has no c drafts for nothing.
    """
    num_rounds = generation.rounds
    draft_cost = generation.draft_steps * (costs.c.get(drafter) or 0.0)
    pass_cost = sum(n * costs.verification_cost(drafter, length + 1) for length, n in enumerate(generation.drafted))
    num_drafting = sum(generation.drafted[1:])
    rest = num_drafting * (costs.overhead or 0.0) + (num_rounds - num_drafting) * costs.plain_overhead
    plain_cost = len(generation.token_ids) * (1 + costs.plain_overhead)
    return ratio(plain_cost, draft_cost + pass_cost + rest)


def predict(
    drafter: str, generations: Sequence[Generation], measured: float | None, costs: Costs
) -> dict[str, float | None]:
    """`predicted` (the median over the prompts, as is the measured one), `measured`, and their `difference`
    as a share of the measured one; a drafter whose steps have no constant cost is taken to draft for nothing.

    Args:
        generations: one a prompt.
    """
    each = [expected_speedup(drafter, generation, costs) for generation in generations if generation.rounds]
    expected = [speedup for speedup in each if speedup is not None]
    predicted = statistics.median(expected) if expected else None
    num_rounds = sum(generation.rounds for generation in generations)
    return {
        "predicted": predicted,
        "measured": measured,
        "difference": predicted / measured - 1 if predicted is not None and measured else None,
        "mean_draft_steps": ratio(sum(generation.draft_steps for generation in generations), num_rounds),
        "mean_tokens_per_round": ratio(sum(len(generation.token_ids) for generation in generations), num_rounds),
        "c": costs.c.get(drafter),
    }
