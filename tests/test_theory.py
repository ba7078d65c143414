"""Theory against the papers' numbers, against sums and simulations, and at the ends of its ranges."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.errors import BadRequest
from specviz.theory import (
    acceptance_probability,
    best_k,
    expected_draft_acceptance_rate,
    expected_speedup,
    expected_speedup_measured,
    expected_tokens_per_round,
    operations_ratio,
    tokens_per_round_ceiling,
)

# alpha -> for each (c, s): (best k, speed-up), with v(k+1) = 1 + s*k
COSTS = [(0.02, 0), (0.05, 0), (0.1, 0), (0.2, 0), (0.05, 0.05), (0.05, 0.1), (0.05, 0.2), (0.5, 0)]
BEST_K = {
    0.5: [(4, 1.79), (3, 1.63), (2, 1.46), (1, 1.25), (2, 1.46), (2, 1.35), (1, 1.20), (0, 1.0)],
    0.6: [(6, 2.17), (4, 1.92), (3, 1.67), (2, 1.40), (3, 1.67), (2, 1.51), (2, 1.31), (1, 1.07)],
    0.7: [(8, 2.76), (6, 2.35), (4, 1.98), (3, 1.58), (4, 1.98), (3, 1.75), (2, 1.46), (1, 1.13)],
    0.8: [(11, 3.82), (8, 3.09), (6, 2.47), (4, 1.87), (6, 2.47), (5, 2.11), (3, 1.69), (2, 1.22)],
    0.9: [(19, 6.37), (13, 4.67), (10, 3.43), (7, 2.37), (10, 3.43), (8, 2.78), (6, 2.09), (3, 1.38)],
}
ALPHAS = st.floats(0, 1)
KS = st.integers(0, 64)


def test_the_worked_example():
    """alpha .8, k 5: one run, and two 'acceptance rates' 26 points apart."""
    assert expected_tokens_per_round(0.8, 5) == pytest.approx(3.689, abs=5e-4)
    assert expected_draft_acceptance_rate(0.8, 5) == pytest.approx(0.538, abs=5e-4)
    assert operations_ratio(0.8, 5) == pytest.approx(1.63, abs=5e-3)
    assert expected_speedup(0.8, 5, 0.1) == pytest.approx(2.46, abs=5e-3)
    assert expected_speedup_measured(0.8, 5, 0.1, verify_cost_ratio=1.6) == pytest.approx(1.76, abs=5e-3)


@pytest.mark.parametrize("alpha", BEST_K)
@pytest.mark.parametrize("column", range(len(COSTS)))
def test_the_best_k_table(alpha, column):
    c, slope = COSTS[column]
    k, speedup = best_k(alpha, c, verify_cost_ratio=lambda num_tokens: 1 + slope * (num_tokens - 1))
    assert (k, round(speedup, 2)) == BEST_K[alpha][column]


def test_a_draft_that_is_dearer_than_it_is_good_is_switched_off():
    assert best_k(0.3, 0.3) == (0, 1.0)
    assert best_k(0.9, 0.01, verify_cost_ratio=lambda n: float(n)) == (0, 1.0)
    assert best_k(1.0, 0.0, max_k=12) == (12, 13.0)


@pytest.mark.parametrize("k", [0, 1, 5, 64])
def test_the_ends_are_exact(k):
    assert expected_tokens_per_round(1, k) == k + 1
    assert expected_tokens_per_round(0, k) == 1
    assert expected_speedup(1, k, 0) == k + 1
    assert operations_ratio(1, k) == 1
    assert operations_ratio(0, k) == k + 1
    assert expected_draft_acceptance_rate(1, k) == (1 if k else None)


@given(ALPHAS, KS)
@settings(deadline=None)
def test_equation_1_is_the_geometric_sum_under_both_ceilings(alpha, k):
    tokens = expected_tokens_per_round(alpha, k)
    assert 1 <= tokens <= tokens_per_round_ceiling(alpha, k) + 1e-9
    assert tokens_per_round_ceiling(alpha, k) <= min(k + 1, tokens_per_round_ceiling(alpha))
    if alpha < 0.999:
        assert tokens == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


def test_the_ceiling_whatever_k():
    assert tokens_per_round_ceiling(0.8) == pytest.approx(5)
    assert tokens_per_round_ceiling(1) == math.inf
    assert tokens_per_round_ceiling(1, 4) == 5


def test_corollary_3_9_some_k_gains_just_when_alpha_exceeds_c():
    assert expected_speedup(0.31, 1, 0.3) == pytest.approx(1.31 / 1.3)
    assert best_k(0.31, 0.3)[0] > 0 and best_k(0.29, 0.3)[0] == 0


def test_simulated_rounds_agree():
    dice = random.Random(7)
    alpha, k, num_rounds = 0.7, 4, 20_000
    accepted = [next((i for i in range(k) if dice.random() >= alpha), k) for _ in range(num_rounds)]
    assert sum(accepted) / num_rounds + 1 == pytest.approx(expected_tokens_per_round(alpha, k), abs=0.03)
    assert sum(accepted) / (k * num_rounds) == pytest.approx(expected_draft_acceptance_rate(alpha, k), abs=0.01)


def test_acceptance_probability_is_the_overlap():
    assert acceptance_probability([0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]) == pytest.approx(0.5)
    assert acceptance_probability([1, 0], [0, 1]) == 0
    assert acceptance_probability([0.25] * 4, [0.25] * 4) == 1


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: expected_tokens_per_round(1.1, 4), "alpha is 1.1"),
        (lambda: expected_tokens_per_round(math.nan, 4), "alpha is nan"),
        (lambda: expected_tokens_per_round(0.5, -1), "k is -1"),
        (lambda: expected_tokens_per_round(0.5, True), "k is True"),
        (lambda: expected_tokens_per_round(0.5, 10**9), "k is"),
        (lambda: expected_speedup(0.5, 4, -0.1), "c is -0.1"),
        (lambda: expected_speedup_measured(0.5, 4, 0.1, 0), "verify_cost_ratio is 0"),
        (lambda: operations_ratio(0.5, 4, math.inf), "c_hat is inf"),
        (lambda: acceptance_probability([1], [0.5, 0.5]), "vocabulary"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(call, word):
    with pytest.raises(BadRequest, match=word):
        call()
