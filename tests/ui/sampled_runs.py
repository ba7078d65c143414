"""A scripted round with a temperature: distributions, dice and a residual, for the tests of the inspector."""

from __future__ import annotations

from typing import Any

from specviz.config import RunSettings
from tests.ui.fake_runs import drafted, extra, finished, prefill, round_event, started

Top = list[list[Any]]


def tops(*entries: tuple[int, str, float]) -> Top:
    """A top list."""
    return [list(entry) for entry in entries]


DRAFT_TOP = tops((21, " jumps", 0.7), (22, " ran", 0.1), (23, " sat", 0.08), (24, " is", 0.05), (25, "\n", 0.02))
TARGET_TOP = tops((26, " leaps", 0.44), (27, " hops", 0.2), (28, " goes", 0.11), (22, " ran", 0.1), (29, " runs", 0.05))
RESIDUAL_TOP = tops(
    (26, " leaps", 0.55), (27, " hops", 0.25), (28, " goes", 0.06), (29, " runs", 0.04), (30, " up", 0.02)
)


def sampled_round() -> dict[str, Any]:
    """One accepted (ratio above 1), one rejected, two discarded, and the correction."""
    fox = drafted(11, " fox", "accepted", 0.52, draft_tail=0.1, target_tail=0.1)
    fox.update(draft_prob_used=0.55, target_prob_used=0.66, accept_prob=1.0, u=0.734)
    jumps = drafted(21, " jumps", "rejected", 0.7, draft_top=DRAFT_TOP, target_top=TARGET_TOP, draft_tail=0.05)
    jumps.update(target_prob=0.03, target_tail=0.1)
    jumps.update(draft_prob_used=0.74, target_prob_used=0.102, accept_prob=0.138, u=0.612)
    rest = [drafted(31, " over", "discarded"), drafted(36, " the", "discarded")]
    said = extra("correction", 26, " leaps", target_prob=0.44, target_top=TARGET_TOP, target_tail=0.1, u=0.31)
    said.update(residual_top=RESIDUAL_TOP, residual_tail=0.08)
    return round_event(1, 9, [fox, jumps, *rest], said)


def sampled_run() -> list[dict[str, Any]]:
    """The whole run of that one round."""
    rounds = [sampled_round()]
    settings = RunSettings(drafter="draft_model", temperature=0.8, top_p=0.95)
    return [started("Say it", settings), prefill(), *rounds, finished(rounds)]
