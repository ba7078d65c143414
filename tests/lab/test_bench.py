"""A whole bench over workers whose every figure is known."""

from __future__ import annotations

import json

import pytest

from specviz.engine import draft_facts
from specviz.lab.bench import Plan, run_bench, run_perplexities
from specviz.lab.engines import ENGINES, Setup
from specviz.lab.report import print_report
from tests.lab.fakes import FakeWorker, cost_answer, failing, generation, prompt

PROMPTS = [prompt(index, "xy"[index % 2]) for index in range(4)]
SECONDS = {"plain": 1.0, "hf_plain": 2.0, "hf_prompt_lookup": 1.6}
GIVEN = Setup(draft="a draft", vllm_url="http://127.0.0.1:9")


def answer_of(name):
    if name in ("plain", "hf_plain"):
        return lambda request: generation().to_dict()
    drafted = {"rounds": 2, "steps": 8, "drafted": (0, 0, 0, 0, 2)}
    if name == "early_exit":  # wrong, deliberately, on the first prompt
        return lambda request: generation((1, 2, 3, 9 if "0" in request["text"] else 4), **drafted).to_dict()
    if name == "costs":
        return cost_answer
    return lambda request: generation(seconds=0.5, **drafted).to_dict()


def bench(engines=ENGINES, setup=GIVEN, log=None, **answers):
    def start(name, its_setup):
        answer = answers.get(name, answer_of(name))
        if answer is None:
            failing(f"{name} has no luck.")()
        return FakeWorker(name, answer, log)

    return run_bench(Plan(setup, PROMPTS, engines, max_new_tokens=8), start=start)


def test_the_shape_is_a_promise():
    result = bench()
    assert list(result) == ["engines", "reasons", "costs", "prediction", "setting"]
    assert tuple(result["engines"]) == ENGINES
    measured = {name: engine for name, engine in result["engines"].items() if engine is not None}
    assert set(result["reasons"]) == set(ENGINES) - set(measured)
    for engine in measured.values():
        assert {
            "tokens_per_second",
            "spread",
            "mean_tokens_per_round",
            "identical",
            "speedup_over_plain",
            "by_category",
        } <= set(engine)
        assert set(engine["by_category"]) == {"x", "y"}
    assert {"c", "v", "overhead", "target_pass_seconds"} <= set(result["costs"])
    assert len(result["costs"]["v"]) == 9 and result["costs"]["v"][0] == 1.0
    assert set(result["prediction"]) == {"prompt_lookup", "draft_model", "early_exit"} | (
        {"draft_head"} & set(measured)
    )
    assert {"predicted", "measured", "difference"} <= set(result["prediction"]["draft_model"])
    assert result["setting"]["prompts"] == 4 and result["setting"]["draft"] == "a draft"
    assert result["setting"]["target"] == "SmolLM2-135M-Instruct"
    assert bench(setup=Setup(target="a target"))["setting"]["target"] == "a target"
    json.dumps(result, allow_nan=False)


def test_a_wrong_engine_is_not_called_identical():
    engines = bench()["engines"]
    assert engines["early_exit"]["identical"] == 0.75
    assert engines["prompt_lookup"]["identical"] == 1.0
    assert engines["plain"]["identical"] is None


def test_the_prediction_uses_the_measured_costs():
    result = bench()
    expected = 4 * 1.02 / (8 * 0.2 + 2 * 1.4 + 2 * 0.05)
    assert result["prediction"]["draft_model"]["predicted"] == pytest.approx(expected)
    assert result["prediction"]["draft_model"]["measured"] == 2.0
    assert result["prediction"]["draft_model"]["difference"] == pytest.approx(expected / 2 - 1)


def test_what_is_not_there_or_not_asked_for_is_null_with_a_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(draft_facts, "SHIPPED_DIR", tmp_path)
    result = bench(engines=("plain", "draft_model", "vllm"), setup=Setup())
    assert [name for name, engine in result["engines"].items() if engine] == ["plain"]
    assert "no draft model" in result["reasons"]["draft_model"]
    assert "No server was named" in result["reasons"]["vllm"]
    assert result["reasons"]["hf_plain"] == "It was not asked for."


def test_a_failed_worker_takes_nobody_with_it():
    result = bench(hf_plain=None, costs=failing("No passes."))
    assert result["engines"]["hf_plain"] is None and result["reasons"]["hf_plain"] == "hf_plain has no luck."
    assert result["engines"]["hf_prompt_lookup"]["speedup_over_own_plain"] is None
    assert result["engines"]["hf_prompt_lookup"]["identical"] is None
    assert result["reasons"]["costs"] == "No passes."
    assert result["costs"]["v"] is None and result["prediction"] == {}


def test_without_our_plain_there_are_speeds_and_no_speedups():
    result = bench(plain=None)
    assert result["engines"]["prompt_lookup"]["tokens_per_second"] == 8.0
    assert result["engines"]["prompt_lookup"]["speedup_over_plain"] is None
    assert result["prediction"]["prompt_lookup"]["difference"] is None


def test_without_an_engine_of_ours_no_costs_are_measured():
    result = bench(engines=("vllm",))
    assert result["costs"]["c"] is None and result["prediction"] == {} and "costs" not in result["reasons"]


def test_costs_are_measured_where_a_run_is_half_way_through_and_often_enough():
    log = []
    bench(engines=("plain", "prompt_lookup"), log=log)
    asked = [request for name, request in log if name == "costs"]
    assert {request["text"] for request in asked} == {
        "prompt 3"
    }  # 8 tokens; the median prompt and half an answer: 10.5
    assert sum(request["repetitions"] for request in asked[1:]) >= 9
    assert asked[0]["drafters"] == ["none", "prompt_lookup"]


@pytest.mark.parametrize("options", [{}, {"plain": None}, {"costs": None}, {"engines": ("vllm",)}])
def test_the_report_shows_what_there_is(options, capsys):
    result = bench(**options)
    result["perplexity"] = {"ours": 12.0, "hf": None, "reference": 11.9, "texts": 4, "tokens": 100}
    print_report(result)
    said = capsys.readouterr().out
    assert "4 prompts" in said and "Perplexity: ours 12.000, transformers -, float32 11.900" in said
    assert all(len(line) <= 80 for line in said.splitlines())
    assert "..." not in said and "…" not in said
    if "engines" not in options:
        assert "prompt_lookup" in said and "4/4" in said


def test_perplexities():
    def start(name, setup):
        return FakeWorker(name, lambda request: {"negative_log_likelihood": 0.0, "num_tokens": 2})

    assert run_perplexities([[1, 2, 3]], Setup(), start=start) == (
        {"ours": 1.0, "hf": 1.0, "reference": 1.0, "texts": 1, "tokens": 2},
        {},
    )
