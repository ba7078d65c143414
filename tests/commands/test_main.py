"""What every command has in common: its exit codes, and an output that goes away."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specviz.__main__ import main
from specviz.commands.arguments import in_options

ROOT = Path(__file__).resolve().parents[2]
SPECVIZ = [sys.executable, "-m", "specviz"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate"],
        ["generate", "--prompt", "a", "--prompt-file", "b"],
        ["generate", "--prompt", "a", "--k", "99"],
        ["generate", "--prompt", "a", "--trace", ""],
        ["generate", "--prompt", "a", "--preset", "nothing"],
        ["check-pair", "/no/such/folder", "/nor/this"],
        ["replay", "/no/such/file"],
    ],
)
def test_a_wrong_request_is_one_sentence_and_exit_code_2(arguments):
    done = subprocess.run([*SPECVIZ, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"specviz {arguments[0]}: ")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate", "--k", "two"], "--k is 'two': give a whole number from 0 to 64, or auto."),
        (["generate", "--k-max", "1.5"], "--k-max is '1.5': give a whole number from 1 to 64."),
        (["generate", "--temperature", "hot"], "--temperature is 'hot': give a number from 0 (greedy) on."),
        (["generate", "--exit-min-layer", "x"], "--exit-min-layer is 'x': give a whole number from 1 on."),
        (["bench", "--limit", "few"], "--limit is 'few': give a whole number from 1 on."),
        (["distill", "--epochs", ""], "--epochs is '': give a number above 0, up to 1000."),
        (["replay", "--round", "\x1b[1m", "run.jsonl"], "--round is '\\x1b[1m': give a whole number from 1 on."),
    ],
)
def test_what_is_no_number_is_told_with_the_choices(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"python -m specviz {arguments[0]}: {sentence}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate", "--k", "99"], '--k is 99: give a whole number from 0 to 64 or "auto".'),
        (["generate", "--k-max", "0"], "--k-max is 0: give a whole number from 1 to 64."),
        (["generate", "--top-p", "2"], "--top-p is 2.0: give a number from 0 to 1 (above 0; 1 turns it off)."),
        (["generate", "--temperature", "-1"], "--temperature is -1.0: give a number from 0 to 1000."),
        (
            ["generate", "--min-new-tokens", "200"],
            "--min-new-tokens is 200: give a whole number from 0 to 128 (not above --max-new-tokens).",
        ),
        (
            ["generate", "--mode", "early_exit", "--exit-threshold", "2"],
            '--exit-threshold is 2.0: give a number from 0 to 1 or "never".',
        ),
        (["bench", "--k", "0"], "--k is 0, which drafts nothing: give 1 or more; plain decoding is measured anyway."),
        (["bench", "--max-prompt-tokens", "0"], "--max-prompt-tokens is 0: give 1 or more."),
        (["distill", "--tokens", "0"], "--tokens is 0: give a whole number from 1 on."),
    ],
)
def test_what_is_refused_is_called_by_its_option(arguments, sentence, capsys):
    prompt = ["--prompt", "a"] if arguments[0] == "generate" else []
    assert main([*arguments, *prompt]) == 2
    assert capsys.readouterr().err == f"specviz {arguments[0]}: {sentence}\n"


@pytest.mark.parametrize(
    "sentence",
    ["Both --preset and --target are given.", "drafts/k is no folder.", "lessons/a.toml: top_p is 2: give 1."],
)
def test_what_is_about_something_else_is_said_as_it_is(sentence):
    assert in_options(sentence, argparse.Namespace(k=1, top_p=2)) == sentence


def test_a_path_in_a_sentence_is_left_alone():
    args = argparse.Namespace(output="x", top_p=2, max_new_tokens=1)
    sentence = "output is /tmp/top_p/x, which is not 'max_new_tokens' but top_p: name a folder."
    assert in_options(sentence, args) == f"--{sentence.replace('but top_p', 'but --top-p')}"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full disk at hand")
def test_an_output_that_cannot_be_written_is_one_sentence():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*SPECVIZ, "doctor", "--json"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "cannot be written" in done.stderr


def test_a_reader_that_goes_away_is_no_fault():
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [*SPECVIZ, "doctor"], cwd=ROOT, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=120
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_leaves_no_traceback():
    with subprocess.Popen([*SPECVIZ, "doctor"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            process.wait(timeout=0.7)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (0, 130)
    assert b"Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["generate", "--k"], "--k"),
        (["generate", "--sed", "1"], "--sed"),
        (["nothing"], "nothing"),
        (["doctor", "x"], "x"),
    ],
)
def test_a_wrong_command_line_gets_one_line_that_names_what_is_wrong(capsys, arguments, value):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    command = "" if arguments == ["nothing"] else f"{arguments[0]} "
    assert value in line and f"python -m specviz {command}--help" in line
