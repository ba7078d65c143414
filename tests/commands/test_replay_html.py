"""`replay --html`: it says where it wrote, and refuses in one sentence."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from specviz.commands import replay
from specviz.errors import BadRequest
from tests.trace.sample_traces import all_traces, to_lines

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


@pytest.mark.parametrize("name", TRACES)
def test_every_trace_becomes_a_page(name, tmp_path, capsys):
    path, page = tmp_path / "run.jsonl", tmp_path / "run.html"
    path.write_bytes(to_lines(TRACES[name]))
    assert run(path, "--html", page) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"Wrote {page} (") and out.count("\n") == 1 and err == ""
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_early_exit_runs_are_shown_on_the_board_and_other_runs_on_the_stage(path, tmp_path):
    recorded, pages = ROOT / "assets" / "early_exit" / "recorded", []
    for trace in (recorded / "1-map.jsonl", recorded / "2-timed.jsonl", path):
        page = tmp_path / "run.html"
        assert run(trace, "--html", page) == 0
        pages.append("hostBoardInFile(document)" in page.read_text(encoding="utf-8"))
    assert pages == [True, True, False]


def test_json_stays_alone_on_its_stream(path, tmp_path, capsys):
    assert run(path, "--json", "--html", tmp_path / "run.html") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["reason"] == "length" and err.startswith("Wrote ")


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (["--json", "--speed", 2], "--speed has no effect with --json, which sums the whole run up."),
        (["--json", "--round", 1], "--round has no effect with --json, which sums the whole run up."),
        (["--round", 1, "--speed", 2], "--speed has no effect with --round: one round is shown at once."),
        (["--round", 1], None),
    ],
)
def test_options_without_effect_are_told(options, note, path, capsys):
    assert run(path, *options) == 0
    assert capsys.readouterr().err.splitlines() == ([note] if note else [])


@pytest.mark.parametrize("option", [("--speed", 2), ("--round", 1)])
def test_options_of_the_terminal_are_refused(path, tmp_path, option):
    with pytest.raises(BadRequest, match="for the terminal"):
        run(path, "--html", tmp_path / "run.html", *option)
    assert not (tmp_path / "run.html").exists()


def test_writing_a_page_needs_neither_torch_nor_gradio(path, tmp_path):
    program = (
        "import sys; from specviz.__main__ import main; code = main(sys.argv[1:]); "
        "print(code, sorted({'torch', 'transformers', 'gradio', 'plotly', 'starlette'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "replay", path, "--html", tmp_path / "run.html"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0 []"
