"""Medians, ratios and shares from records whose figures are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specviz.lab.summary import (
    acceptance_by_position,
    identical_share,
    mean_tokens_per_round,
    quartiles,
    summarize_engines,
)
from tests.lab.fakes import generation

CATEGORIES = ["x", "y", "x"]


def record(*seconds, **fields):
    return [[generation(seconds=each, **fields)] for each in seconds]


def test_a_speedup_is_the_median_of_the_ratios_prompt_by_prompt():
    records = {"plain": record(1.0, 2.0, 4.0), "prompt_lookup": record(0.5, 2.0, 1.0, rounds=2)}
    engines = summarize_engines(records, CATEGORIES)
    lookup = engines["prompt_lookup"]
    assert engines["plain"]["tokens_per_second"] == 2.0
    assert lookup["tokens_per_second"] == 4.0  # of 8, 2 and 4
    assert lookup["speedup_over_plain"] == 2.0  # of 2, 1 and 4; the ratio of the medians is 2 by chance only
    assert lookup["by_category"]["x"]["speedup_over_plain"] == 3.0
    assert lookup["by_category"]["y"] == {
        "tokens_per_second": 2.0,
        "speedup_over_plain": 1.0,
        "mean_tokens_per_round": 2.0,
        "prompts": 1,
    }
    assert lookup["spread"] == [3.0, 6.0] and lookup["speedup_spread"] == [1.5, 3.0]
    assert (lookup["prompts"], lookup["tokens"], lookup["mean_tokens_per_round"]) == (3, 12, 2.0)


def test_repetitions_of_a_prompt_count_as_one_by_their_median():
    slow_once = [[generation(seconds=each) for each in (1.0, 1.0, 9.0)]]
    assert summarize_engines({"plain": slow_once}, ["x"])["plain"]["tokens_per_second"] == 4.0


def test_transformers_is_also_compared_with_its_own_plain():
    records = {"plain": record(1.0), "hf_plain": record(2.0), "hf_prompt_lookup": record(1.0)}
    engines = summarize_engines(records, ["x"])
    assert engines["hf_prompt_lookup"]["speedup_over_own_plain"] == 2.0
    assert engines["hf_prompt_lookup"]["speedup_over_plain"] == 1.0
    assert engines["hf_plain"]["speedup_over_own_plain"] == 1.0
    assert "speedup_over_own_plain" not in engines["plain"]


def test_identical_is_the_share_of_prompts_with_the_ids_of_the_own_familys_plain_decoding():
    wrong = [[generation(token_ids=(1, 2, 3, 9))], *record(1.0, 1.0)]
    records = {"plain": record(1, 1, 1), "prompt_lookup": wrong, "hf_plain": wrong, "hf_assisted": wrong}
    engines = summarize_engines(records, CATEGORIES)
    assert engines["prompt_lookup"]["identical"] == pytest.approx(2 / 3)
    assert engines["hf_assisted"]["identical"] == 1.0
    assert engines["prompt_lookup"]["identical_why"] is None


def test_plain_decoding_is_compared_with_its_own_repetitions_only():
    once, same, other = record(1), [[generation(), generation()]], [[generation(), generation(token_ids=(1,))]]
    records = {"plain": once, "hf_plain": same, "llama_cpp_plain": other}
    engines = summarize_engines(records, ["x"])
    assert engines["plain"]["identical"] is None and "--repeat 2" in engines["plain"]["identical_why"]
    assert engines["hf_plain"]["identical"] == 1.0 and engines["llama_cpp_plain"]["identical"] == 0.0
    assert engines["hf_plain"]["identical_why"] is None


def test_one_repetition_that_differs_is_a_difference():
    runs = [[generation(), generation(token_ids=(1,))]]
    assert identical_share(runs, [[generation()]]) == 0.0
    assert identical_share([[generation()]], [[generation(), generation(token_ids=(1,))]]) == 0.0


def test_without_plain_decoding_there_is_nothing_to_compare_with():
    (lookup,) = summarize_engines({"prompt_lookup": record(1.0)}, ["x"]).values()
    assert lookup["identical"] is None and lookup["identical_why"] == "plain, its plain decoding, was not measured"
    (vllm,) = summarize_engines({"vllm": record(1.0, rounds=None)}, ["x"]).values()
    assert vllm["tokens_per_second"] == 4.0
    assert vllm["speedup_over_plain"] is vllm["identical"] is vllm["mean_tokens_per_round"] is None
    assert vllm["speedup_spread"] is None and "no plain decoding" in vllm["identical_why"]


def test_prompts_without_a_speed_are_left_out_and_never_count_as_zero():
    nothing = generation(token_ids=())
    engines = summarize_engines({"plain": [[generation()], [nothing]], "early_exit": record(2.0, 2.0)}, ["x", "x"])
    assert engines["plain"]["tokens_per_second"] == 4.0
    assert engines["early_exit"]["speedup_over_plain"] == 0.5
    assert mean_tokens_per_round([generation(token_ids=(), rounds=0)]) is None


def test_acceptance_by_position_is_over_the_rounds_that_judged_it():
    runs = [
        replace(generation(), accepted=[3, 1], judged=[4, 3]),
        replace(generation(), accepted=[0, 0, 0], judged=[4, 0, 0]),
    ]
    assert acceptance_by_position(runs) == [pytest.approx(3 / 8), pytest.approx(1 / 3), None]
    assert acceptance_by_position([generation()]) is None and acceptance_by_position([]) is None


def test_quartiles():
    assert quartiles([]) is None
    assert quartiles([2.0]) == [2.0, 2.0]
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == [2.0, 4.0]
