"""What every command has in common: its exit codes, and an output that goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specviz.__main__ import main

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
    [(["generate", "--k", "two"], "two"), (["generate", "--sed", "1"], "--sed"), (["nothing"], "nothing")],
)
def test_a_wrong_command_line_gets_one_line_that_names_what_is_wrong(capsys, arguments, value):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert value in line and "--help" in line
