"""`replay`: a trace in the terminal or as one JSON object, in pipes and with wrong requests."""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specviz.commands import replay
from specviz.errors import BadRequest
from tests.trace.sample_traces import TraceBuilder, all_traces, story, to_lines

TRACES = all_traces()
ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_bytes(to_lines(TRACES["greedy"]))
    return path


def run(*arguments) -> int:
    parser = argparse.ArgumentParser()
    replay.add_arguments(parser)
    return replay.run(parser.parse_args([str(argument) for argument in arguments]))


def test_it_shows_every_round_and_the_summary(path, capsys):
    assert run(path) == 0
    out, err = capsys.readouterr()
    assert [f"Round {n}" in out for n in range(1, 6)] == [True, True, True, True, False]
    assert "✗ rejected" in out and "Identical to plain decoding: yes" in out and err == ""


def test_one_round_alone(path, capsys):
    assert run(path, "--round", 2) == 0
    out, _ = capsys.readouterr()
    assert "Round 2" in out and "Round 1" not in out and "alpha" not in out


@pytest.mark.parametrize("name", TRACES)
def test_json_is_one_object_and_nothing_else(name, tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    path.write_bytes(to_lines(TRACES[name]))
    assert run(path, "--json") == 0
    out, err = capsys.readouterr()
    summary = json.loads(out)
    assert out.isascii() and out.count("\n") == 1 and err == ""
    assert {"text", "token_ids", "reason", "counts", "metrics", "seconds", "identity"} <= set(summary)
    end = next((event for event in TRACES[name] if event["type"] == "run_finished"), None)
    if end:
        assert summary["text"] == end["output_text"] and summary["reason"] == end["reason"]
        assert summary["counts"] == end["counts"] and summary["metrics"] == end["metrics"]
        assert summary["incomplete"] is False


def test_json_of_a_killed_run_tells_as_far_as_it_got(path, capsys):
    path.write_bytes(to_lines(story().events)[:-3])
    assert run(path, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["incomplete"] is True and summary["reason"] is None
    assert summary["counts"]["rounds"] == 3 and summary["text"] == " the quick brown dog ran far away."


def test_json_of_a_failed_run_says_so(tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    path.write_bytes(to_lines(story().fail("Out of memory.").events))
    assert run(path, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["error"] == "Out of memory." and summary["reason"] is None and summary["identity"] is None


def test_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(to_lines(TRACES["plain"]))))
    assert run("-", "--json") == 0
    assert json.loads(capsys.readouterr().out)["counts"]["plains"] == 2


def test_the_recorded_pace_is_kept_only_when_asked_for(path, monkeypatch, capsys):
    waited = []
    monkeypatch.setattr(time, "sleep", waited.append)
    run(path)
    assert waited == []
    run(path, "--speed", 2)
    assert sum(waited) == pytest.approx(TRACES["greedy"][-2]["t"] / 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--round", 5], ["--round is 5", "1 to 4"]),
        (["--round", 0], ["--round is 0"]),
        (["--round", -1], ["--round is -1"]),
        (["--speed", 0], ["--speed is 0", "above 0"]),
        (["--speed", -1], ["--speed is -1"]),
        (["--speed", "nan"], ["--speed is nan"]),
        (["--speed", "inf"], ["--speed is inf"]),
    ],
)
def test_wrong_requests_are_refused_by_name(path, arguments, words):
    with pytest.raises(BadRequest) as caught:
        run(path, *arguments)
    assert all(word in str(caught.value) for word in words)


def test_a_trace_without_rounds(path, capsys):
    path.write_bytes(to_lines(TraceBuilder().finish("cancelled").events))
    assert run(path) == 0
    assert "the run was stopped" in capsys.readouterr().out
    with pytest.raises(BadRequest, match="no round"):
        run(path, "--round", 1)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(BadRequest, match="There is no file"):
        run(tmp_path / "none.jsonl")


def test_a_path_is_named_as_it_was_given(tmp_path, path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    (tmp_path / "notes.md").write_text("# Notes\n")
    given = f"./{tmp_path.name}"
    for arguments, words in (
        ([given], f"{given} is a folder"),
        ([f"{given}/notes.md"], f"{given}/notes.md is not a trace of SpecViz"),
        ([path, "--html", f"{given}/nope/page.html"], f"the folder {tmp_path.name}/nope does not exist"),
        ([path, "--html", given], f"--html is {tmp_path.name}, which is a folder"),
    ):
        with pytest.raises(BadRequest, match=re.escape(words)):
            run(*arguments)


@pytest.mark.parametrize("options", ["", "--json"])
def test_a_reader_that_goes_away_is_no_fault(tmp_path, options):
    build = story()
    for _ in range(300):
        build.round([" a"], " b", extra=" c")
    path = tmp_path / "run.jsonl"
    path.write_bytes(to_lines(build.finish().events))
    command = [sys.executable, "-m", "specviz", "replay", str(path), *options.split()]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_replaying_loads_neither_torch_nor_gradio():
    code = "import sys; import specviz.commands.replay, specviz.trace.writer, specviz.theory, specviz.glossary;"
    code += "print([m for m in ('torch', 'transformers', 'gradio', 'plotly', 'jsonschema') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
