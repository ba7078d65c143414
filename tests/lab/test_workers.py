"""Worker processes: the protocol, and every way in which one can fail its parent."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from specviz.errors import BadRequest
from specviz.lab.engines import Setup
from specviz.lab.worker import serve
from specviz.lab.worker_process import WorkerFailed, WorkerProcess

ROOT = Path(__file__).resolve().parents[2]
FIRST = {"job": "plain", "setup": Setup().to_dict()}


class Doubler:
    facts: ClassVar = {"threads": 1}

    def answer(self, request):
        if request["n"] < 0:
            raise BadRequest("n is negative: give more.")
        return {"n": 2 * request["n"], "one": 1 // request["n"]}


def served(*requests, make=lambda name, setup: Doubler()):
    answers = io.StringIO()
    serve(io.StringIO("".join(json.dumps(request) + "\n" for request in requests)), answers, make)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_ready_then_an_answer_a_request():
    assert served(FIRST, {"n": 1}, {"n": 2}) == [
        {"ready": {"threads": 1}},
        {"answer": {"n": 2, "one": 1}},
        {"answer": {"n": 4, "one": 0}},
    ]


def test_a_failure_is_said_in_a_sentence_and_ends_it():
    assert served(FIRST, {"n": -1}, {"n": 2})[1:] == [{"failed": "n is negative: give more."}]
    assert "ZeroDivisionError" in served(FIRST, {"n": 0})[1]["failed"]


def test_a_job_that_cannot_be_made_says_why():
    def make(name, setup):
        raise ImportError("no such library")

    assert served(FIRST, make=make) == [{"failed": "It broke off (ImportError: no such library)."}]


def test_nothing_asked_is_nothing_said():
    assert served() == []


# --- the parent's side ---------------------------------------------------------------------------

READY = "import json, sys\nsys.stdin.readline()\nprint(json.dumps({'ready': {}}), flush=True)\n"


def process(code, **options):
    return WorkerProcess("plain", Setup(threads=1), command=(sys.executable, "-c", code), **options)


def test_a_worker_answers_and_is_gone_when_closed():
    worker = process(READY + "for line in sys.stdin: print(json.dumps({'answer': json.loads(line)}), flush=True)")
    assert worker.ask({"a": 1}) == {"a": 1}
    child = psutil.Process(worker._process.pid)
    worker.close()
    worker.close()
    assert not child.is_running()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('import sys; sys.stdin.readline(); print(\'{"failed": "no memory"}\')', "no memory"),
        ("import sys; sys.stdin.readline(); sys.exit('a last word')", r"ended with code 1 \(a last word\)"),
        ("import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 9)", "ended with code -9"),
        ("import sys; sys.stdin.readline(); print('noise')", "not JSON"),
        ("import sys; sys.stdin.readline(); print('[1]')", "Its process"),
    ],
)
def test_a_worker_that_does_not_become_ready(code, words):
    with pytest.raises(WorkerFailed, match=words):
        process(code)


def test_a_worker_that_dies_later():
    worker = process(READY + "sys.stdin.readline(); sys.exit(3)")
    with pytest.raises(WorkerFailed, match="ended with code 3"):
        worker.ask({})
    with pytest.raises(WorkerFailed):
        worker.ask({})
    worker.close()


def test_a_worker_that_never_answers_is_ended():
    worker = process(READY + "import time; time.sleep(600)", longest_seconds=5)
    worker._longest_seconds = 0.2
    with pytest.raises(WorkerFailed, match=r"did not answer within 0\.2 seconds"):
        worker.ask({})
    worker.close()


def test_a_real_worker_says_why_it_cannot():
    with pytest.raises(WorkerFailed, match="No server answers"):
        WorkerProcess("vllm", Setup(vllm_url="http://127.0.0.1:9"), longest_seconds=120)


def test_a_real_worker_ends_with_its_input():
    command = [sys.executable, "-m", "specviz.lab.worker"]
    done = subprocess.run(command, cwd=ROOT, input="", capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
