"""The costs of a round, and the speedup that they lead one to expect."""

from __future__ import annotations

import pytest

from specviz.lab.cost_meter import MOST_PASS_TOKENS, CostMeter, pass_seconds
from specviz.lab.costs import fold_costs
from specviz.lab.prediction import expected_speedup, predict
from specviz.theory import expected_speedup_measured, expected_tokens_per_round
from tests.engine.runs import byte_vocabulary
from tests.lab.fakes import cost_answer, generation
from tests.table_model import TableModel, random_table


def costs(*drafters, repetitions=3):
    return fold_costs(cost_answer({"drafters": list(drafters), "repetitions": repetitions})["repetitions"], 100)


def test_everything_is_counted_in_one_token_target_passes():
    folded = costs("draft_model", "prompt_lookup")
    assert folded.c == {"draft_model": pytest.approx(0.2), "prompt_lookup": None}
    assert folded.v == pytest.approx([0.9 + 0.1 * n for n in range(1, 10)])
    assert folded.v[0] == 1.0
    assert folded.overhead == pytest.approx(0.05) and folded.plain_overhead == pytest.approx(0.02)
    assert (folded.target_pass_seconds, folded.context_tokens, folded.repetitions) == (pytest.approx(0.1), 100, 3)


def test_v_is_the_median_of_each_repetitions_own_ratio():
    rounds = cost_answer({"drafters": [], "repetitions": 1})["repetitions"][0]["rounds"]
    passes = [[1.0, 1.1], [10.0, 12.0], [1.0, 1.3]]
    folded = fold_costs([{"pass_seconds": each, "rounds": rounds} for each in passes], 1)
    assert folded.v == pytest.approx([1.0, 1.2]) and folded.target_pass_seconds == 1.0


def test_v_beyond_what_was_measured_goes_on_as_a_line():
    assert costs().verify_cost_ratio(3) == pytest.approx(1.2)
    assert costs().verify_cost_ratio(17) == pytest.approx(2.6)


def test_a_drafter_that_drafted_nothing_has_no_cost():
    (repetition,) = cost_answer({"drafters": ["early_exit"], "repetitions": 1})["repetitions"]
    repetition["rounds"]["early_exit"] = []
    folded = fold_costs([repetition], 1)
    assert folded.c == {"early_exit": None} and folded.overhead is None


def test_the_formula_is_that_of_theory_with_what_was_measured_in_place_of_alpha():
    folded = costs("draft_model")
    alpha, k = 0.8, 4
    tau = expected_tokens_per_round(alpha, k)
    num_rounds = 1000
    made = generation(
        token_ids=[0] * round(tau * num_rounds), rounds=num_rounds, steps=k * num_rounds, drafted=[0] * k + [num_rounds]
    )
    theory = expected_speedup_measured(alpha, k, 0.2, folded.verify_cost_ratio(k + 1), folded.overhead)
    assert expected_speedup("draft_model", made, folded) == pytest.approx(
        theory * (1 + folded.plain_overhead), rel=1e-3
    )


def test_rounds_of_different_lengths_cost_what_each_costs():
    made = generation(token_ids=[0] * 6, rounds=3, steps=5, drafted=[1, 1, 0, 0, 1])
    cost = 5 * 0.2 + (1.0 + 1.1 + 1.4) + (0.02 + 2 * 0.05)
    assert expected_speedup("draft_model", made, costs("draft_model")) == pytest.approx(6 * 1.02 / cost)


@pytest.mark.parametrize(("verify", "spared"), [(0.14, 0.0), (0.13, 0.25), (0.12, 0.5), (0.2, 0.0), (0.05, 1.0)])
def test_what_drafting_has_run_already_is_not_counted_again(verify, spared):
    (repetition,) = cost_answer({"drafters": ["early_exit"], "repetitions": 1})["repetitions"]
    repetition["rounds"]["early_exit"] = [
        {"steps": 4, "draft": 0.08, "verify": verify, "other": 0.005},
        {"steps": 0, "draft": 0.0, "verify": 0.1, "other": 0.002},
    ]
    folded = fold_costs([repetition], 1)
    assert folded.spared == {"early_exit": pytest.approx(spared)}
    made = generation(token_ids=[0] * 3, rounds=1, steps=2, drafted=[0, 0, 1])
    expected = 3 * 1.02 / (2 * 0.2 + 1.2 - spared * 0.2 + 0.05)
    assert expected_speedup("early_exit", made, folded) == pytest.approx(expected)
    assert folded.verification_cost("draft_model", 3) == pytest.approx(1.2)


def test_plain_decoding_is_predicted_to_be_as_fast_as_itself():
    assert expected_speedup("none", generation(), costs()) == pytest.approx(1.0)


def test_predicted_beside_measured():
    runs = [generation(token_ids=[0] * n, rounds=4, steps=16, drafted=[0, 0, 0, 0, 4]) for n in (4, 12, 20)]
    each = predict("draft_model", runs, 1.0, costs("draft_model"))
    assert each["predicted"] == pytest.approx(12 * 1.02 / (4 * (4 * 0.2 + 1.4 + 0.05)))
    assert each["measured"] == 1.0 and each["difference"] == pytest.approx(each["predicted"] - 1)
    assert (each["c"], each["mean_draft_steps"], each["mean_tokens_per_round"]) == (pytest.approx(0.2), 4.0, 3.0)


def test_without_a_measured_speedup_there_is_no_difference():
    each = predict("prompt_lookup", [generation()], None, costs("prompt_lookup"))
    assert each["predicted"] == pytest.approx(1.0) and each["difference"] is each["c"] is None


def test_passes_are_timed_after_the_context_and_leave_it_as_it_was():
    model = TableModel(random_table(16), max_positions=20)
    seconds = pass_seconds(model, list(range(16)))
    assert len(seconds) == MOST_PASS_TOKENS and min(seconds) > 0
    timed = model.calls[1:]
    assert {call.start for call in timed} == {model.max_positions - MOST_PASS_TOKENS - 1}
    assert {len(call.token_ids) for call in timed} == set(range(1, 10))
    assert all(call.num_logits == len(call.token_ids) for call in timed)


def test_the_meter_on_real_models(tiny_setup):
    text = "one two three one two three one two"
    request = {
        "text": text,
        "token_ids": byte_vocabulary().encode(text, raw=False)[1],
        "drafters": ["none", "draft_model", "early_exit", "prompt_lookup"],
        "repetitions": 2,
    }
    folded = fold_costs(CostMeter(tiny_setup).answer(request)["repetitions"], len(request["token_ids"]))
    assert folded.repetitions == 2 and len(folded.v) == 9 and folded.v[0] == 1.0
    assert folded.c["draft_model"] > 0 and folded.c["early_exit"] > 0 and folded.c["prompt_lookup"] is None
    assert folded.overhead > 0 and folded.plain_overhead > 0
