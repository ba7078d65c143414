"""Verification as a pure function: tables, a grid of dice that is exact, and properties."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specviz.engine.dice import Dice, draw
from specviz.engine.verify import residual_distribution, verify_greedy, verify_rejection

ALMOST_ONE = math.nextafter(1.0, 0.0)


def probs(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float32)


# --- greedy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft_ids", "target_ids", "num_accepted", "extra_id", "extra_kind"),
    [
        ([5, 9, 7], [5, 9, 7, 1], 3, 1, "bonus"),
        ([5, 9, 7], [6, 9, 7, 1], 0, 6, "correction"),
        ([5, 9, 7], [5, 8, 7, 1], 1, 8, "correction"),
        ([5, 9, 7], [5, 9, 3, 1], 2, 3, "correction"),
        ([], [4], 0, 4, "plain"),
        ([4], [4, 4], 1, 4, "bonus"),
        ([0], [0, 0], 1, 0, "bonus"),
    ],
)
def test_greedy_accepts_the_agreeing_prefix_and_adds_the_targets_token(
    draft_ids, target_ids, num_accepted, extra_id, extra_kind
):
    verdict = verify_greedy(draft_ids, target_ids)
    assert (verdict.num_accepted, verdict.extra_id, verdict.extra_kind) == (num_accepted, extra_id, extra_kind)
    assert verdict.accept_probs == ()
    assert verdict.residual is None


def test_greedy_does_not_accept_a_token_after_the_first_failure():
    assert verify_greedy([1, 2, 3], [9, 2, 3, 4]).num_accepted == 0


def test_greedy_asks_for_one_target_row_more_than_was_drafted():
    with pytest.raises(AssertionError):
        verify_greedy([1, 2], [1, 2])


# --- rejection: tables ------------------------------------------------------------------------

HALF_AND_HALF = [0.5, 0.5, 0.0]
FIRST_ONLY = [1.0, 0.0, 0.0]


def test_all_accepted_gives_a_bonus_from_the_row_after_the_draft():
    target = probs(HALF_AND_HALF, HALF_AND_HALF, [0.0, 0.0, 1.0])
    verdict = verify_rejection([0, 1], probs(HALF_AND_HALF, HALF_AND_HALF), target, [0.9, 0.9], 0.3)
    assert (verdict.num_accepted, verdict.extra_id, verdict.extra_kind) == (2, 2, "bonus")
    assert verdict.accept_probs == (1.0, 1.0)
    assert verdict.residual is None


def test_the_first_rejected_is_corrected_from_the_residual():
    target = probs([0.2, 0.8, 0.0], HALF_AND_HALF, HALF_AND_HALF)
    verdict = verify_rejection([0, 1], probs([0.8, 0.2, 0.0], HALF_AND_HALF), target, [0.25, 0.0], 0.9)
    assert (verdict.num_accepted, verdict.extra_id, verdict.extra_kind) == (0, 1, "correction")
    assert verdict.accept_probs == pytest.approx((0.25,))
    assert verdict.residual.tolist() == pytest.approx([0.0, 1.0, 0.0])


def test_a_rejection_in_the_middle_ends_the_judging():
    draft = probs(HALF_AND_HALF, [0.9, 0.1, 0.0], HALF_AND_HALF)
    target = probs(HALF_AND_HALF, [0.1, 0.2, 0.7], HALF_AND_HALF, HALF_AND_HALF)
    verdict = verify_rejection([1, 0, 1], draft, target, [0.0, 0.5, 0.0], 0.0)
    assert (verdict.num_accepted, verdict.extra_kind) == (1, "correction")
    assert verdict.accept_probs == pytest.approx((1.0, 1 / 9))
    assert verdict.target_probs_used == pytest.approx((0.5, 0.1))
    assert verdict.draft_probs_used == pytest.approx((0.5, 0.9))
    assert verdict.residual.tolist() == pytest.approx([0.0, 0.1 / 0.8, 0.7 / 0.8])
    assert verdict.extra_id == 1


def test_an_empty_draft_is_one_plain_token_from_the_target():
    verdict = verify_rejection([], None, probs([0.25, 0.5, 0.25]), [], 0.5)
    assert (verdict.num_accepted, verdict.extra_id, verdict.extra_kind) == (0, 1, "plain")
    assert verdict.accept_probs == ()


def test_a_token_that_the_target_excludes_is_rejected_even_by_a_die_of_zero():
    verdict = verify_rejection([2], probs([0.0, 0.0, 1.0]), probs(HALF_AND_HALF, HALF_AND_HALF), [0.0], 0.0)
    assert verdict.num_accepted == 0
    assert verdict.extra_id == 0


def test_a_certain_acceptance_stands_against_the_largest_die():
    verdict = verify_rejection([0], probs(HALF_AND_HALF), probs(FIRST_ONLY, FIRST_ONLY), [ALMOST_ONE], 0.0)
    assert verdict.num_accepted == 1


def test_a_die_equal_to_the_ratio_rejects():
    verdict = verify_rejection([0], probs(FIRST_ONLY), probs([0.25, 0.75, 0.0], FIRST_ONLY), [0.25], 0.0)
    assert verdict.num_accepted == 0


def test_identical_distributions_accept_whatever_the_dice():
    row = [0.2, 0.3, 0.5]
    for token_id in range(3):
        verdict = verify_rejection([token_id], probs(row), probs(row, row), [ALMOST_ONE], ALMOST_ONE)
        assert verdict.num_accepted == 1


def test_a_residual_without_mass_falls_back_to_the_target():
    row = torch.tensor([0.25, 0.75, 0.0])
    assert residual_distribution(row, row, 0).tolist() == row.tolist()


def test_a_one_hot_target_at_the_rejected_token_of_a_lookup_falls_back_to_the_target():
    # Cannot be rejected by a die; asked of the residual alone, it must still not be 0/0.
    residual = residual_distribution(torch.tensor(FIRST_ONLY), None, 0)
    assert residual.tolist() == FIRST_ONLY


def test_a_deterministic_draft_is_accepted_with_the_targets_own_probability():
    target = probs([0.3, 0.6, 0.1], [0.0, 0.0, 1.0])
    accepted = verify_rejection([1], None, target, [0.59], 0.0)
    rejected = verify_rejection([1], None, target, [0.61], 0.9)
    assert (accepted.num_accepted, accepted.extra_id) == (1, 2)
    assert accepted.accept_probs == pytest.approx((0.6,))
    assert accepted.draft_probs_used == (1.0,)
    assert (rejected.num_accepted, rejected.extra_id) == (0, 2)
    assert rejected.residual.tolist() == pytest.approx([0.75, 0.0, 0.25])


def test_a_deterministic_draft_equals_a_one_hot_distribution():
    target = probs([0.3, 0.6, 0.1], [0.2, 0.2, 0.6])
    one_hot = probs([0.0, 1.0, 0.0])
    for uniform, extra in itertools.product([0.0, 0.3, 0.599, 0.601, 0.9], [0.0, 0.4, 0.8, ALMOST_ONE]):
        without = verify_rejection([1], None, target, [uniform], extra)
        with_rows = verify_rejection([1], one_hot, target, [uniform], extra)
        assert (without.num_accepted, without.extra_id) == (with_rows.num_accepted, with_rows.extra_id)


@pytest.mark.parametrize(
    ("draft_rows", "target_rows", "num_dice"),
    [(2, 2, 2), (2, 4, 2), (1, 3, 2), (2, 3, 1)],
    ids=["too few target rows", "too many target rows", "too few draft rows", "too few dice"],
)
def test_shapes_are_checked_at_the_door(draft_rows, target_rows, num_dice):
    with pytest.raises(AssertionError):
        verify_rejection(
            [0, 0], probs(*[HALF_AND_HALF] * draft_rows), probs(*[HALF_AND_HALF] * target_rows), [0.1] * num_dice, 0.1
        )


# --- rejection: exact -------------------------------------------------------------------------

GRID = 20  # probabilities below are multiples of 1/20, so the middles of 20 cells integrate exactly
GRID_DICE = [(cell + 0.5) / GRID for cell in range(GRID)]
TARGET_ROW = [0.5, 0.3, 0.2]


def first_token_distribution(draft_row: list[float] | None, drafted: dict[int, float]) -> list[float]:
    """The exact law of the first token, over a grid of acceptance dice and the residual's own masses."""
    law = [0.0, 0.0, 0.0]
    target = probs(TARGET_ROW, TARGET_ROW)
    for token_id, drawn_with in drafted.items():
        for uniform in GRID_DICE:
            rows = None if draft_row is None else probs(draft_row)
            verdict = verify_rejection([token_id], rows, target, [uniform], 0.5)
            weight = drawn_with / GRID
            if verdict.num_accepted:
                law[token_id] += weight
            else:
                for other, mass in enumerate(verdict.residual.tolist()):
                    law[other] += weight * mass
    return law


@pytest.mark.parametrize(
    "draft_row",
    [[0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
    ids=["same", "other", "lacks the likeliest", "one-hot at the likeliest", "one-hot at the least likely"],
)
def test_over_all_dice_the_first_token_has_exactly_the_targets_distribution(draft_row):
    # Ratios: 0.2/0.5, 0.3/0.5, 0.5/1, 0.2/1 are multiples of 1/20; those above 1 are clamped.
    drafted = {token_id: prob for token_id, prob in enumerate(draft_row) if prob > 0}
    assert first_token_distribution(draft_row, drafted) == pytest.approx(TARGET_ROW, abs=1e-6)


@pytest.mark.parametrize("token_id", [0, 1, 2])
def test_over_all_dice_a_lookup_has_exactly_the_targets_distribution(token_id):
    assert first_token_distribution(None, {token_id: 1.0}) == pytest.approx(TARGET_ROW, abs=1e-6)


def test_the_exact_check_sees_a_draft_row_that_is_not_what_was_drawn_from():
    claimed = [0.25, 0.25, 0.5]
    really_drawn_from = {0: 0.5, 1: 0.25, 2: 0.25}
    assert first_token_distribution(claimed, really_drawn_from) != pytest.approx(TARGET_ROW, abs=0.01)


def test_over_all_dice_the_correction_follows_the_residual():
    target, draft = probs([0.5, 0.3, 0.2], TARGET_ROW), probs([0.1, 0.1, 0.8])
    counts = [0, 0, 0]
    for extra in ((cell + 0.5) / 600 for cell in range(600)):
        counts[verify_rejection([2], draft, target, [0.9], extra).extra_id] += 1
    assert counts == [400, 200, 0]


# --- properties -------------------------------------------------------------------------------

weights = st.lists(st.integers(0, 6), min_size=4, max_size=4).filter(lambda row: sum(row) > 0)
dice = st.floats(0.0, 1.0, exclude_max=True, allow_nan=False)


def normalized(rows: list[list[int]]) -> torch.Tensor:
    table = torch.tensor(rows, dtype=torch.float32).reshape(-1, 4)
    return table / table.sum(-1, keepdim=True)


@st.composite
def verification_cases(draw_from):
    num_drafted = draw_from(st.integers(0, 5))
    draft = normalized(draw_from(st.lists(weights, min_size=num_drafted, max_size=num_drafted)))
    target = normalized(draw_from(st.lists(weights, min_size=num_drafted + 1, max_size=num_drafted + 1)))
    draft_ids = [draw_from(st.sampled_from(row.nonzero().flatten().tolist())) for row in draft]
    uniforms = draw_from(st.lists(dice, min_size=num_drafted, max_size=num_drafted))
    return draft_ids, draft, target, uniforms, draw_from(dice)


@given(verification_cases())
def test_a_verdict_is_the_first_failed_die_and_nothing_excluded_is_ever_emitted(case):
    draft_ids, draft, target, uniforms, extra_uniform = case
    verdict = verify_rejection(draft_ids, draft, target, uniforms, extra_uniform)
    ratios = [(target[i, t] / draft[i, t]).item() for i, t in enumerate(draft_ids)]
    passed = [u < min(1.0, ratio) for u, ratio in zip(uniforms, ratios, strict=True)]
    expected = passed.index(False) if False in passed else len(draft_ids)

    assert verdict.num_accepted == expected
    assert len(verdict.accept_probs) == min(expected + 1, len(draft_ids))
    assert all(0.0 <= prob <= 1.0 for prob in verdict.accept_probs)
    assert all(target[i, t] > 0 for i, t in enumerate(draft_ids[:expected])), "accepted what the target excludes"
    assert target[expected, verdict.extra_id] > 0, "added what the target excludes"
    kind = "plain" if not draft_ids else "bonus" if expected == len(draft_ids) else "correction"
    assert verdict.extra_kind == kind
    assert (verdict.residual is None) == (kind != "correction")
    if kind == "correction":
        assert verdict.residual.sum().item() == pytest.approx(1.0, abs=1e-5)
        assert (verdict.residual >= 0).all()
        assert verdict.residual[verdict.extra_id] > 0


@given(verification_cases())
def test_a_verdict_does_not_change_its_arguments(case):
    draft_ids, draft, target, uniforms, extra_uniform = case
    before = (list(draft_ids), draft.clone(), target.clone())
    verify_rejection(draft_ids, draft, target, uniforms, extra_uniform)
    assert draft_ids == before[0]
    assert torch.equal(draft, before[1])
    assert torch.equal(target, before[2])


@given(verification_cases(), st.data())
def test_a_verdict_depends_on_nothing_after_the_rejection(case, data):
    draft_ids, draft, target, uniforms, extra_uniform = case
    verdict = verify_rejection(draft_ids, draft, target, uniforms, extra_uniform)
    if verdict.extra_kind != "correction":
        return
    keep = verdict.num_accepted + 1
    other_dice = [
        *uniforms[:keep],
        *data.draw(st.lists(dice, min_size=len(uniforms) - keep, max_size=len(uniforms) - keep)),
    ]
    changed = target.clone()
    changed[keep:] = normalized([[1, 1, 1, 1]] * (len(target) - keep))
    again = verify_rejection(draft_ids, draft, changed, other_dice, extra_uniform)
    assert (again.num_accepted, again.extra_id) == (verdict.num_accepted, verdict.extra_id)


# --- dice -------------------------------------------------------------------------------------


@given(weights, dice)
def test_a_draw_is_the_inverse_of_the_cumulative_distribution(row, uniform):
    table = normalized([row])[0]
    token_id = draw(table, uniform)
    assert table[token_id] > 0
    cumulative = table.double().cumsum(0) / table.double().sum()
    assert uniform < cumulative[token_id] + 1e-12
    assert token_id == 0 or uniform >= cumulative[token_id - 1] - 1e-12


@pytest.mark.parametrize("uniform", [0.0, 0.5, ALMOST_ONE])
def test_a_draw_never_gives_a_token_of_probability_zero(uniform):
    assert draw(torch.tensor([0.0, 0.0, 1.0, 0.0]), uniform) == 2


def test_a_die_is_a_function_of_its_address_alone():
    first, second = Dice(7), Dice(7)
    address = (3, 12, "accept")
    for noise in range(5):
        second.uniform(noise, noise, "draft")
    assert first.uniform(*address) == second.uniform(*address)


def test_dice_of_different_addresses_differ():
    addresses = [(r, p, w) for r in range(4) for p in range(4) for w in ("draft", "accept", "extra")]
    values = {Dice(seed).uniform(*address) for seed in (0, 1, 2**62) for address in addresses}
    assert len(values) == 3 * len(addresses)


def test_dice_are_uniform():
    values = [Dice(0).uniform(r, p, "accept") for r in range(100) for p in range(100)]
    assert all(0.0 <= value < 1.0 for value in values)
    counts = torch.histc(torch.tensor(values), bins=20, min=0.0, max=1.0)
    chi_square = ((counts - 500) ** 2 / 500).sum().item()
    assert chi_square < 50, "19 degrees of freedom: 50 is the 1e-4 tail"
