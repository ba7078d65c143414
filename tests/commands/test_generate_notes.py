"""What `generate` says beside the text: options without effect, counts in fitting words, a trace that is lost, a prompt too long."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from specviz.__main__ import build_parser, main
from specviz.commands.arguments import model_sources
from specviz.commands.exit_arguments import exits_given
from specviz.commands.recording import Recording
from specviz.commands.without_effect import (
    idle_in_a_run,
    idle_in_bench,
    idle_in_distill,
    idle_in_early_exit,
    idle_in_fetch,
)
from specviz.config import RunSettings
from specviz.engine import loader
from specviz.trace.reader import read_trace
from tests.tiny_models import tiny_model
from tests.tiny_tokenizers import byte_level_tokenizer
from tests.trace.sample_traces import all_traces

SHORT = ("--prompt", "one two three", "--raw", "--max-new-tokens", "8", "--dtype", "float32", "--device", "cpu")


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("models") / "target"
    tiny_model().save_pretrained(folder)
    tokenizer = byte_level_tokenizer()
    tokenizer.model_max_length = 100
    tokenizer.save_pretrained(folder)
    return str(folder)


def parsed(*arguments: str):
    return build_parser().parse_args([*arguments])


# --- options without effect -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "idle"),
    [
        ([], []),
        (["--k-max", "8", "--draft-threshold", "0.5"], ["--k-max", "--draft-threshold"]),
        (["--k", "auto", "--k-max", "8"], []),
        (["--k", "auto", "--draft-threshold", "0.5"], ["--draft-threshold"]),
        (["--drafter", "early_exit", "--k", "auto", "--draft-threshold", "0.5", "--exit-layer", "2"], []),
        (["--exit-layer", "2", "--exit-heads", "plain"], ["--exit-layer", "--exit-heads"]),
        (["--drafter", "early_exit", "--max-ngram", "3"], ["--max-ngram"]),
        (["--draft-precision", "int8"], ["--draft-precision"]),
        (["--lookup-first"], ["--lookup-first"]),
        (["--no-lookup-first"], []),
        (["--drafter", "none", "--k", "3", "--max-ngram", "3"], ["--k", "--max-ngram"]),
        (["--k", "0", "--k-max", "3"], ["--k-max"]),
        (["--top-p", "0.9", "--top-k", "3", "--seed", "0"], ["--top-k", "--top-p", "--seed"]),
        (["--top-p", "1", "--top-k", "0"], []),
        (["--temperature", "1", "--top-p", "0.9", "--top-k", "3", "--seed", "0"], []),
        (["--trace-detail", "light"], ["--trace-detail"]),
        (["--trace-detail", "light", "--trace", "x"], []),
    ],
)
def test_an_option_without_effect_is_found(arguments, idle):
    args = parsed("generate", "--target", "somewhere", *arguments)
    settings = args.command._settings(args, None, model_sources(args, None))
    assert [option for option, _ in idle_in_a_run(args, settings)] == idle


def test_a_lookup_before_a_draft_uses_the_lookups_options():
    args = parsed("generate", "--max-ngram", "3")
    assert not list(idle_in_a_run(args, RunSettings(drafter="draft_head", lookup_first=True)))
    assert list(idle_in_a_run(args, RunSettings(drafter="draft_head")))


def test_a_draft_beside_a_preset_that_drafts_otherwise_is_found():
    args = parsed("generate", "--preset", "copy", "--draft", "somewhere")
    assert [option for option, _ in idle_in_a_run(args, RunSettings())] == ["--draft"]


@pytest.mark.parametrize(
    ("arguments", "idle"),
    [
        (["--exit-threshold", "never", "--exit-threshold-decay", "2", "--exit-measure", "gap"],
         ["--exit-threshold-decay", "--exit-measure"]),
        (["--exit-threshold", "never", "--exit-measure", "gap", "--exit-run", "map"], []),
        (["--exit-threshold", "0.5", "--exit-threshold-decay", "2", "--exit-measure", "gap"], []),
    ],
)  # fmt: skip
def test_in_early_exit_too(arguments, idle):
    args = parsed("generate", "--mode", "early_exit", *arguments)
    assert [option for option, _ in idle_in_early_exit(args, RunSettings(), exits_given(args))] == idle


@pytest.mark.parametrize(
    ("engines", "arguments", "idle"),
    [
        ("plain,hf_plain", ["--k", "3", "--draft", "x", "--draft-precision", "int8"], ["--k", "--draft-precision", "--draft"]),
        ("plain,draft_model", ["--k", "3", "--draft", "x", "--draft-precision", "int8"], []),
        ("hf_assisted", ["--draft", "x", "--k", "3", "--hf-dtype", "float32"], []),
        ("plain", ["--gguf", "x", "--vllm", "http://h", "--hf-dtype", "float32"], ["--gguf", "--vllm", "--hf-dtype"]),
        ("plain", ["--hf-dtype", "float32", "--perplexity"], []),
    ],
)  # fmt: skip
def test_in_bench_too(engines, arguments, idle):
    args = parsed("bench", "--engines", engines, *arguments)
    assert [option for option, _ in idle_in_bench(args, engines.split(","))] == idle


def test_in_fetch_too():
    assert [option for option, _ in idle_in_fetch(parsed("fetch", "some-pair", "--verify"), False)] == ["--verify"]
    assert [option for option, _ in idle_in_fetch(parsed("fetch", "--pin", "x", "--verify"), True)] == ["--verify"]
    assert not list(idle_in_fetch(parsed("fetch", "--verify"), True))


def test_it_is_a_note_and_no_fault(target, capsys):
    assert main(["generate", "--target", target, *SHORT, "--top-p", "0.9"]) == 0
    assert "--top-p has no effect with --temperature 0, which draws nothing." in capsys.readouterr().err.splitlines()
    assert main(["generate", "--target", target, *SHORT]) == 0
    assert "no effect" not in capsys.readouterr().err


def test_k_0_is_said_to_be_plain_decoding(target, capsys):
    assert main(["generate", "--target", target, *SHORT, "--k", "0"]) == 0
    told = capsys.readouterr().err
    assert told.startswith("k is 0: plain decoding.\n") and "8 tokens in 8 target passes" in told
    assert main(["generate", "--target", target, *SHORT, "--k", "1"]) == 0
    assert "plain decoding" not in capsys.readouterr().err


@pytest.mark.parametrize("prompt", ["", " \n"])
def test_an_empty_prompt_is_refused_before_anything_is_loaded(prompt, monkeypatch, capsys):
    monkeypatch.setattr(loader, "load_pair", None)
    assert main(["generate", "--prompt", prompt, "--target", "SmolLM2-135M-Instruct"]) == 2
    assert capsys.readouterr().err == (
        "specviz generate: The prompt is empty: give --prompt or --prompt-file some text.\n"
    )


# --- counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--drafter", "none"], "8 tokens in 8 target passes (ended by length)"),
        (["--deadline", "0"], "0 tokens in 0 target passes (ended by deadline); no draft token was judged"),
    ],
)
def test_drafts_are_counted_only_where_there_were_some(arguments, words, target, capsys):
    assert main(["generate", "--target", target, *SHORT, *arguments]) == 0
    told = capsys.readouterr().err
    assert words in told and "of 0 judged" not in told


def test_a_sampled_plain_run_is_compared_since_it_throws_the_same_dice(target, capsys):
    common = ["generate", "--target", target, *SHORT, "--temperature", "1", "--check", "--json"]
    assert main([*common, "--drafter", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["identity"]["identical"] is True
    assert main(common) == 0
    assert json.loads(capsys.readouterr().out)["identity"]["identical"] is None


# --- a trace that is lost ---------------------------------------------------------------------

needs_a_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full disk at hand")


@needs_a_full_disk
def test_a_trace_that_the_disk_will_not_take_costs_no_answer(target, capsys):
    assert main(["generate", "--target", target, *SHORT]) == 0
    answer = capsys.readouterr().out
    assert main(["generate", "--target", target, *SHORT, "--trace", "/dev/full"]) == 1
    said = capsys.readouterr()
    assert said.out == answer
    (sentence,) = [line for line in said.err.splitlines() if "trace" in line]
    assert sentence.startswith("specviz generate: The trace could not be written any further (the disk is full)")
    assert "8 tokens" in said.err
    assert main(["generate", "--target", target, *SHORT, "--trace", "/dev/full", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["reason"] == "length"


def test_a_folder_that_goes_before_the_first_event_costs_the_trace_only(tmp_path):
    events = all_traces()["greedy"]
    recording = Recording(events, str(tmp_path / "gone" / "run.jsonl"))
    assert list(recording) == events
    assert recording.fault.exit_code == 1 and "does not exist" in str(recording.fault)


def test_a_folder_that_goes_while_it_is_written_to_is_told(tmp_path):
    events, folder = all_traces()["greedy"], tmp_path / "folder"
    folder.mkdir()
    recording, passed = Recording(events, str(folder / "run.jsonl")), []
    for event in recording:
        passed.append(event)
        shutil.rmtree(folder, ignore_errors=True)
    assert passed == events and "The trace is lost" in str(recording.fault)


def test_a_trace_that_nothing_befalls_is_whole(tmp_path):
    events, path = all_traces()["greedy"], tmp_path / "run.jsonl"
    recording = Recording(events, str(path))
    assert list(recording) == events and recording.fault is None
    assert list(read_trace(path)) == events
    assert list(Recording(events, None)) == events


# --- a prompt too long ------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [["--raw"], []])
def test_transformers_says_nothing_of_its_own_of_a_prompt_that_is_too_long(raw, target, monkeypatch, capsys):
    said = []
    monkeypatch.setattr(logging.getLogger("transformers.tokenization_utils_base"), "warning", said.append)
    assert main(["generate", "--target", target, "--prompt", "word " * 2000, *SHORT[3:], *raw]) == 2
    assert said == []
    assert "prompt" in capsys.readouterr().err.splitlines()[-1]


def test_idle_options_of_distill():
    args = parsed("distill", "train", "--output", "x", "--bench", "y", "--epochs", "1")
    assert [option for option, _ in idle_in_distill(args, ("train",))] == ["--output", "--bench"]
    assert not list(idle_in_distill(args, ("train", "export")))
