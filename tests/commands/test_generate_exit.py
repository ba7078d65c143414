"""`specviz generate --mode early_exit`: what it prints and records, and what is refused before anything is loaded."""

from __future__ import annotations

import json

import pytest

from specviz.__main__ import build_parser
from specviz.early_exit.exit_settings import ExitSettings
from specviz.engine import loader
from specviz.errors import BadRequest
from specviz.trace.reader import read_trace
from tests.tiny_models import build_model
from tests.tiny_tokenizers import byte_level_tokenizer

SHORT = ("--prompt", "one two three", "--raw", "--max-new-tokens", "8", "--dtype", "float32", "--device", "cpu")


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("models") / "target"
    build_model("llama", num_hidden_layers=6).save_pretrained(folder)
    byte_level_tokenizer().save_pretrained(folder)
    return str(folder)


def generate(*arguments: str) -> int:
    args = build_parser().parse_args(["generate", *arguments])
    return args.command.run(args)


def test_one_run_with_everything(target, tmp_path, capsys):
    trace = tmp_path / "run.jsonl"
    exits = ("--exit-threshold", "0.07", "--exit-layers", "2,3,5", "--exit-min-layer", "3", "--exit-heads", "plain")
    more = ("--exit-measure", "top1", "--exit-threshold-decay", "2")
    assert (
        generate(
            "--mode",
            "early_exit",
            "--target",
            target,
            *SHORT,
            *exits,
            *more,
            "--check",
            "--json",
            "--trace",
            str(trace),
        )
        == 0
    )
    summary = json.loads(capsys.readouterr().out)
    assert summary["error"] is None and summary["metrics"]["mean_layers_per_token"] >= 3
    assert {"identical", "common_prefix", "same_share"} <= set(summary["identity"])
    info = read_trace(trace)[0]["early_exit"]
    assert (info["exit_layers"], info["threshold"], info["threshold_decay"], info["run"]) == (
        [3, 5],
        0.07,
        2.0,
        "timed",
    )


def test_never_leaving_is_plain_decoding(target, capsys):
    common = ("--target", target, *SHORT, "--json")
    assert generate("--mode", "early_exit", "--exit-threshold", "never", *common) == 0
    never = json.loads(capsys.readouterr().out)
    assert generate("--drafter", "none", *common) == 0
    assert never["token_ids"] == json.loads(capsys.readouterr().out)["token_ids"]


def test_for_a_reader_it_says_how_many_layers_were_run(target, capsys):
    assert generate("--mode", "early_exit", "--target", target, *SHORT, "--exit-threshold", "0", "--check") == 0
    told = capsys.readouterr().err
    assert "layers a token" in told and "judged" not in told and "tokens/s of plain decoding" in told


def test_where_nothing_was_generated_nothing_is_said_of_speculation(target, capsys):
    assert generate("--mode", "early_exit", "--target", target, *SHORT, "--deadline", "0") == 0
    told = capsys.readouterr().err
    assert "0 tokens (ended by deadline)." in told and "target pass" not in told and "judged" not in told


def test_a_sampled_map_run_is_compared_since_it_throws_plain_decodings_dice(target, capsys):
    common = ("--mode", "early_exit", "--target", target, *SHORT, "--temperature", "1", "--check", "--json")
    assert generate(*common, "--exit-run", "map") == 0
    assert json.loads(capsys.readouterr().out)["identity"]["identical"] is True
    assert generate(*common, "--exit-threshold", "0") == 0
    assert "sampled" in json.loads(capsys.readouterr().out)["identity"]["why"]


def test_a_map_run(target, tmp_path):
    trace = tmp_path / "map.jsonl"
    assert generate("--mode", "early_exit", "--exit-run", "map", "--target", target, *SHORT, "--trace", str(trace)) == 0
    assert all("map" in event for event in read_trace(trace) if event["type"] == "round")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode", "served"], "--mode is 'served': give early_exit"),
        (["--exit-threshold", "0.5"], "--exit-threshold is given without --mode early_exit"),
        (["--exit-measure", "top1"], "--exit-measure is given without --mode early_exit"),
        (["--mode", "early_exit", "--exit-measure", "luck"], "exit_measure is 'luck': choose one of top1"),
        (["--mode", "early_exit", "--exit-threshold", "much"], "--exit-threshold is 'much'"),
        (["--mode", "early_exit", "--exit-threshold", "nan"], "exit_threshold is nan"),
        (["--mode", "early_exit", "--exit-threshold", "2"], "exit_threshold is 2.0"),
        (["--mode", "early_exit", "--exit-layers", "a,b"], "--exit-layers is 'a,b'"),
        (["--mode", "early_exit", "--exit-layers", "5,2"], "ascending order"),
        (["--mode", "early_exit", "--exit-min-layer", "0"], "exit_min_layer is 0"),
        (["--mode", "early_exit", "--exit-heads", "x"], "exit_heads is 'x'"),
        (["--mode", "early_exit", "--exit-run", "fast"], "--exit-run is 'fast': choose one of timed, map"),
        (["--mode", "early_exit", "--drafter", "prompt_lookup"], "--drafter is given, but --mode is early_exit"),
        (["--mode", "early_exit", "--draft-precision", "int8"], "--draft-precision is given, but --mode is early_exit"),
        (["--mode", "early_exit", "--lookup-first"], "--lookup-first is given, but --mode is early_exit"),
        (["--mode", "early_exit", "--k", "3"], "--k is given, but --mode is early_exit"),
        (["--mode", "early_exit", "--exit-layer", "3"], "--exit-layer is given, but --mode is early_exit"),
    ],
)
def test_refused_before_anything_is_loaded(arguments, words):
    with pytest.raises(BadRequest, match=words):
        generate("--target", "/nowhere", *SHORT, *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--exit-min-layer", "6"], "leaves none of the exit layers"),
        (["--exit-heads", "translators"], "none were trained for"),
    ],
)
def test_refused_by_the_target(arguments, words, target):
    with pytest.raises(BadRequest, match=words):
        generate("--mode", "early_exit", "--target", target, *SHORT, *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode", "early_exit", "--exit-layers", "2,6"], "an exit layer is 6: .* has 6 layers"),
        (["--mode", "early_exit", "--exit-min-layer", "99"], "exit_min_layer is 99: .* has 6 layers"),
        (["--drafter", "early_exit", "--exit-layer", "6"], "exit_layer is 6: .* has 6 layers"),
    ],
)
def test_layers_that_the_target_lacks_are_refused_without_its_weights(arguments, words, target, monkeypatch):
    monkeypatch.setattr(loader, "load_pair", None)
    with pytest.raises(BadRequest, match=words):
        generate("--target", target, *SHORT, *arguments)


def test_the_help_names_the_defaults(capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args(["generate", "--help"])
    told = capsys.readouterr().out
    assert f"default {ExitSettings().measure}" in told and f"default {ExitSettings().threshold}" in told
