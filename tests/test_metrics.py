"""Metrics: counts, and every ratio with the denominator that its name promises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.metrics import (
    METRIC_NAMES,
    MetricsFold,
    fold_counts,
    fold_metrics,
    is_about_equal,
    metrics_from_counts,
    speedup_over_plain,
    walltime_speedup,
    wilson_interval,
)
from tests.trace.sample_traces import TraceBuilder, served_trace, story


def drafted_and_accepted(*rounds: tuple[int, int]) -> TraceBuilder:
    """A trace of rounds that drafted and accepted so many tokens each, with an extra token."""
    build = TraceBuilder()
    for drafted, accepted in rounds:
        never_judged = [f"x{i}" for i in range(drafted - accepted - 1)]
        rejected = "no" if accepted < drafted else None
        build.round([f"a{i}" for i in range(accepted)], rejected, never_judged, extra="!")
    return build


def test_proposed_tested_and_accepted_are_three_numbers():
    """3 of 4, 0 of 4, 2 of 2: the case of ggml-org/llama.cpp #14048 and SGLang PR #13212."""
    fold = fold_metrics(drafted_and_accepted((4, 3), (4, 0), (2, 2)).events)
    counts, metrics = fold.counts, fold.metrics()
    assert (counts["drafted"], counts["accepted"], counts["accepted"] + counts["rejected"]) == (10, 5, 7)
    assert counts["drafted"] == counts["accepted"] + counts["rejected"] + counts["discarded"] + counts["cut"]
    assert metrics["mean_tokens_per_round"] == pytest.approx(1 + 5 / 3)
    assert metrics["alpha"] == pytest.approx(5 / 7)
    assert metrics["draft_acceptance_rate"] == pytest.approx(5 / 10)
    assert metrics["mean_accepted_draft_tokens"] == pytest.approx(5 / 3)
    assert metrics["tokens_per_round_histogram"] == [0, 1, 0, 1, 1]
    assert metrics["acceptance_by_position"] == pytest.approx([2 / 3, 2 / 3, 1 / 3, 0])
    assert metrics["judged_by_position"] == [3, 2, 1, 1]
    assert metrics["conditional_acceptance_by_position"] == pytest.approx([2 / 3, 1, 1, 0])


def test_a_story_of_every_kind_of_round():
    counts = fold_counts(story().round([" a"], cut=[" b", " c"]).finish("eos").events)
    assert counts == {
        "rounds": 5,
        "drafted": 13,
        "accepted": 6,
        "rejected": 2,
        "discarded": 3,
        "cut": 2,
        "committed": 10,
        "corrections": 2,
        "bonuses": 1,
        "plains": 1,
    }


def test_cut_tokens_are_in_no_judgement():
    metrics = fold_metrics(TraceBuilder().round([" a"], cut=[" b", " c"]).events).metrics()
    assert metrics["alpha"] == 1
    assert metrics["draft_acceptance_rate"] == pytest.approx(1 / 3)
    assert metrics["mean_tokens_per_round"] == 1  # the last round had no extra token
    assert metrics["judged_by_position"] == [1, 0, 0]
    assert metrics["conditional_acceptance_by_position"] == [1, None, None]


def test_a_ratio_of_nothing_is_null_and_never_zero():
    for fold in (MetricsFold(), fold_metrics(TraceBuilder().events)):
        metrics = fold.metrics()
        assert set(metrics) == set(METRIC_NAMES)
        for name in METRIC_NAMES:
            assert metrics[name] is None or metrics[name] == []


def test_plain_decoding_has_a_speed_and_no_acceptance():
    metrics = fold_metrics(TraceBuilder(mode="plain").round(extra=" a").round(extra=" b").events).metrics()
    assert metrics["alpha"] is metrics["alpha_interval"] is metrics["draft_acceptance_rate"] is None
    assert metrics["mean_tokens_per_round"] == 1
    assert metrics["mean_accepted_draft_tokens"] == 0
    assert metrics["tokens_per_second"] == pytest.approx(2 / 0.082)


def test_speed_is_committed_tokens_over_the_rounds_own_seconds():
    metrics = fold_metrics(story().events).metrics()
    assert metrics["tokens_per_second"] == pytest.approx(9 / (4 * 0.041))
    assert sum(metrics["time_shares"].values()) == pytest.approx(1)
    assert metrics["time_shares"]["verify"] == pytest.approx(0.029 / 0.041)


def test_what_a_server_committed_at_prefill_is_in_no_ratio():
    events = served_trace()
    fold = fold_metrics(events)
    assert fold.counts["committed"] == len(events[-1]["token_ids"]) - 1 == 3
    assert fold.metrics()["mean_tokens_per_round"] == pytest.approx(3 / 2)
    assert fold.metrics()["tokens_per_second"] is None  # it did not say how long its rounds took


def test_incremental_and_whole_folds_agree_and_live_drafts_count_for_nothing():
    fold = MetricsFold()
    for event in story(live=True).events:
        fold.add(event)
    assert fold.counts == fold_counts(story().events)


def test_metrics_can_be_made_from_counts_alone():
    fold = fold_metrics(story().events)
    metrics = metrics_from_counts(fold.counts)
    assert metrics["alpha"] == fold.metrics()["alpha"]
    assert metrics["tokens_per_second"] is None and metrics["acceptance_by_position"] == []


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=8))
@settings(deadline=None)
def test_identities_hold_for_all_runs(rounds):
    fold = fold_metrics(drafted_and_accepted(*[(max(pair), min(pair)) for pair in rounds]).events)
    counts, metrics = fold.counts, fold.metrics()
    assert counts["drafted"] == counts["accepted"] + counts["rejected"] + counts["discarded"] + counts["cut"]
    assert counts["committed"] == counts["accepted"] + counts["corrections"] + counts["bonuses"] + counts["plains"]
    assert sum(n * times for n, times in enumerate(metrics["tokens_per_round_histogram"])) == counts["committed"]
    assert sum(metrics["tokens_per_round_histogram"]) == counts["rounds"]
    assert sum(metrics["judged_by_position"]) == counts["accepted"] + counts["rejected"]
    assert all(number >= 0 for number in counts.values())
    if metrics["alpha"] is not None:
        low, high = metrics["alpha_interval"]
        assert 0 <= low <= metrics["alpha"] <= high <= 1
        assert metrics["draft_acceptance_rate"] <= metrics["alpha"]
    if counts["rounds"]:
        assert metrics["mean_tokens_per_round"] == pytest.approx(metrics["mean_accepted_draft_tokens"] + 1)


@pytest.mark.parametrize(
    ("successes", "trials", "interval"),
    [  # Newcombe 1998, Statistics in Medicine 17, table I, method 3
        (81, 263, [0.2553, 0.3662]),
        (15, 148, [0.0624, 0.1605]),
        (0, 20, [0.0, 0.1611]),
        (1, 29, [0.0061, 0.1718]),
    ],
)
def test_wilson_interval_against_published_values(successes, trials, interval):
    assert wilson_interval(successes, trials) == pytest.approx(interval, abs=6e-5)


def test_wilson_interval_at_its_ends():
    assert wilson_interval(0, 0) is None
    assert wilson_interval(5, 5)[1] == 1


@pytest.mark.parametrize(
    ("mode", "identity", "measured"),
    [
        ("speculative", {"plain_tokens_per_second": 20.0}, (1.5, 20.0)),  # an older trace: the watched run's own speed
        ("speculative", {"plain_tokens_per_second": 20.0, "again_tokens_per_second": 50.0}, (2.5, 20.0)),
        ("speculative", {"plain_tokens_per_second": 20.0, "again_tokens_per_second": None}, None),
        ("early_exit", {"plain_tokens_per_second": 20.0, "again_tokens_per_second": 10.0}, (0.5, 20.0)),
        ("plain", {"plain_tokens_per_second": 20.0}, None),
        ("speculative", {"plain_tokens_per_second": None}, None),
        ("speculative", {}, None),
        ("speculative", None, None),
    ],
)
def test_a_speedup_is_told_by_two_unwatched_runs(mode, identity, measured):
    assert speedup_over_plain(mode, 30.0, identity) == measured


def test_near_to_one_is_neither_faster_nor_slower():
    assert [is_about_equal(speedup) for speedup in (0.9, 0.96, 1.0, 1.04, 1.1)] == [False, True, True, True, False]


def test_speedup_needs_both_speeds():
    assert walltime_speedup(30.0, 20.0) == 1.5
    assert walltime_speedup(None, 20.0) is None
    assert walltime_speedup(30.0, None) is None
    assert walltime_speedup(30.0, 0) is None
