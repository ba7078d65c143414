"""What theory expects of speculative decoding: only formulas with a source or a derivation.

"Leviathan" is Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding",
ICML 2023, arXiv 2211.17192. alpha is the chance that a judged draft token is accepted, taken as the same
and independent at every position; k draft tokens a round; c = one draft step / one one-token target pass.
Real text is not so even: easy stretches make these formulas too low, a drafter that gets worse with
every position makes them too high.

All functions raise BadRequest for an argument outside its range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from specviz.errors import BadRequest

MOST_DRAFT_TOKENS_TRIED = 256


def acceptance_probability(target_probs: Sequence[float], draft_probs: Sequence[float]) -> float:
    """The chance that a token drawn from `draft_probs` is accepted: sum over x of min(target, draft).

    This is beta at one prefix, 1 minus the total variation distance (Leviathan, theorem 3.5).

    Args:
        target_probs, draft_probs: [vocab] over the same tokens in the same order.
    """
    if len(target_probs) != len(draft_probs):
        raise BadRequest(
            f"target_probs has {len(target_probs)} entries and draft_probs {len(draft_probs)}: "
            "give both over the same vocabulary."
        )
    return math.fsum(min(target, draft) for target, draft in zip(target_probs, draft_probs, strict=True))


def expected_tokens_per_round(alpha: float, k: int) -> float:
    """Tokens committed per target pass: 1 + alpha + ... + alpha^k (Leviathan, equation 1).

    Between 1 (alpha 0) and the ceiling k+1 (alpha 1).
    """
    _require_alpha(alpha)
    _require_k(k)
    if alpha == 1:
        return float(k + 1)
    return math.fsum(alpha**i for i in range(k + 1))  # = (1 - alpha^(k+1)) / (1 - alpha), without cancellation


def expected_draft_acceptance_rate(alpha: float, k: int) -> float | None:
    """Expected accepted / drafted: (alpha + ... + alpha^k) / k; None for k = 0. It is not alpha.

    Derivation: position i is accepted when it and all before it are, which has probability alpha^i.
    """
    _require_k(k)
    return (expected_tokens_per_round(alpha, k) - 1) / k if k else None


def tokens_per_round_ceiling(alpha: float, k: int | None = None) -> float:
    """What no run of this alpha can exceed on average: k+1 for this k, 1/(1-alpha) whatever k.

    Derivation: the geometric sum of equation 1, cut at k, and for k without end (infinite at alpha 1).

    Args:
        k: None asks for the ceiling over all k.
    """
    _require_alpha(alpha)
    whatever_k = math.inf if alpha == 1 else 1 / (1 - alpha)
    if k is None:
        return whatever_k
    _require_k(k)
    return min(float(k + 1), whatever_k)


def expected_speedup(alpha: float, k: int, c: float) -> float:
    """Times as fast as plain decoding, if a pass over k+1 tokens cost as much as over one.

    expected tokens per round / (k*c + 1) (Leviathan, theorem 3.8). By corollary 3.9 some k gains whenever
    alpha > c, and then at least (1+alpha)/(1+c), which is k = 1.
    """
    return expected_speedup_measured(alpha, k, c, verify_cost_ratio=1.0)


def expected_speedup_measured(alpha: float, k: int, c: float, verify_cost_ratio: float, overhead: float = 0.0) -> float:
    """Times as fast as plain decoding, with the true cost of verifying several tokens in one pass.

    expected tokens per round / (k*c + v + o). Derivation: a round takes k draft steps, one target pass
    over k+1 tokens and a fixed rest, all in units of a one-token target pass; v = 1, o = 0 is theorem 3.8.

    Args:
        verify_cost_ratio: v, a target pass over k+1 tokens / over one; above 1 on a CPU.
        overhead: o, the rest of a round / a one-token target pass.
    """
    _require_cost("c", c)
    _require_cost("overhead", overhead)
    if not (math.isfinite(verify_cost_ratio) and verify_cost_ratio > 0):
        raise BadRequest(f"verify_cost_ratio is {verify_cost_ratio!r}: give a number above 0.")
    return expected_tokens_per_round(alpha, k) / (k * c + verify_cost_ratio + overhead)


def best_k(
    alpha: float,
    c: float,
    verify_cost_ratio: Callable[[int], float] = lambda num_tokens: 1.0,
    overhead: float = 0.0,
    max_k: int = 64,
) -> tuple[int, float]:
    """(k, expected speedup) of the best k up to `max_k`; (0, 1.0) means: do not speculate here.

    Found by trying each k. Of equal ones the smallest is taken.

    Args:
        verify_cost_ratio: v(n), the cost of a target pass over n tokens / over one.
    """
    _require_k(max_k)
    best = (0, 1.0)  # plain decoding, the measure of all speedups
    for k in range(1, max_k + 1):
        speedup = expected_speedup_measured(alpha, k, c, verify_cost_ratio(k + 1), overhead)
        if speedup > best[1] + 1e-12:
            best = (k, speedup)
    return best


def operations_ratio(alpha: float, k: int, c_hat: float = 0.0) -> float:
    """Arithmetic per token / that of plain decoding: (k*c_hat + k + 1) / expected tokens per round.

    The price in work (energy, a shared machine) of the time gained (Leviathan, theorem 3.11).

    Args:
        c_hat: arithmetic of the drafter per token / that of the target.
    """
    _require_cost("c_hat", c_hat)
    return (k * c_hat + k + 1) / expected_tokens_per_round(alpha, k)


def _require_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise BadRequest(f"alpha is {alpha!r}: give a probability from 0 to 1.")


def _require_k(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= MOST_DRAFT_TOKENS_TRIED:
        raise BadRequest(f"k is {k!r}: give a whole number from 0 to {MOST_DRAFT_TOKENS_TRIED}.")


def _require_cost(name: str, cost: float) -> None:
    if not (math.isfinite(cost) and cost >= 0):
        raise BadRequest(f"{name} is {cost!r}: give a number of 0 or more.")
