"""`specviz bench` from the outside: its JSON on tiny models, its refusals, and an interrupt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from specviz.__main__ import build_parser
from specviz.commands.bench import _Progress
from specviz.errors import BadRequest
from specviz.lab.engines import ENGINES
from tests.lab.tiny_folders import save_tiny_pair

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("--limit", "2", "--max-new-tokens", "8", "--max-prompt-tokens", "60")
FLOAT32 = ("--device", "cpu", "--dtype", "float32", "--hf-dtype", "float32", "--threads", "1")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return save_tiny_pair(tmp_path_factory.mktemp("pair"))


def command(*arguments):
    return [sys.executable, "-m", "specviz", "bench", *arguments]


@pytest.mark.slow
def test_one_json_object_on_stdout_and_nothing_else(folders):
    arguments = ["--target", folders["target"], *SHORT, *FLOAT32, "--perplexity", "--json"]
    arguments += ["--engines", "plain,early_exit,hf_plain,draft_model"]
    done = subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert tuple(result["engines"]) == ENGINES
    measured = [name for name, engine in result["engines"].items() if engine]
    assert measured == ["plain", "early_exit", "hf_plain"]
    assert "no draft model" in result["reasons"]["draft_model"]
    assert result["engines"]["early_exit"]["identical"] == 1.0
    assert result["engines"]["plain"]["speedup_over_plain"] == 1.0
    assert result["setting"]["prompts"] == 2 and result["setting"]["prompts_cut"] >= 1
    perplexity = result["perplexity"]
    assert perplexity["ours"] == pytest.approx(perplexity["reference"]) == pytest.approx(perplexity["hf"])
    assert "Prompt 1 of 2" in done.stderr


def test_engines_none_of_which_can_run_are_a_wrong_request(folders):
    arguments = ["bench", "--target", folders["target"], *FLOAT32, *SHORT, "--engines", "draft_model"]
    args = build_parser().parse_args(arguments)
    with pytest.raises(BadRequest, match=r"There is no draft model: name one with --draft"):
        args.command.run(args)


@pytest.fixture
def busy_bench(folders):
    """A bench in the middle of its work, and its workers."""
    arguments = ["--target", folders["target"], *FLOAT32, *SHORT, "--engines", "plain", "--repeat", "1000"]
    with subprocess.Popen(command(*arguments), cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as bench:
        assert any(line.startswith(b"Prompt") for line in bench.stderr)
        workers = psutil.Process(bench.pid).children(recursive=True)
        assert len(workers) == 2
        yield bench, workers
        bench.kill()


@pytest.mark.slow
def test_an_interrupt_ends_the_workers_too(busy_bench):
    bench, workers = busy_bench
    bench.send_signal(signal.SIGINT)
    said = bench.communicate(timeout=60)[1]
    assert bench.returncode == 130 and b"Traceback" not in said
    assert psutil.wait_procs(workers, timeout=10)[1] == []


@pytest.mark.slow
def test_a_killed_bench_leaves_no_orphans(busy_bench):
    bench, workers = busy_bench
    bench.kill()
    until = time.monotonic() + 60
    while any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engines", "plain,fast"], "engines has 'fast': choose from plain, prompt_lookup"),
        (["--engines", ""], "engines has ''"),
        (["--suite", "/no/such/suite.jsonl"], "There is no suite file"),
        (["--limit", "0"], "limit is 0"),
        (["--k", "0"], "k is 0"),
        (["--k", "99"], "is 99"),
        (["--max-new-tokens", "0"], "max_new_tokens is 0"),
        (["--max-prompt-tokens", "0"], "max-prompt-tokens is 0"),
        (["--max-prompt-tokens", "2", "--max-new-tokens", "8"], "may have 2 tokens here"),
        (["--max-new-tokens", "128"], "holds 128 tokens"),
        (["--repeat", "0"], "repeat is 0"),
        (["--threads", "0"], "threads is 0"),
        (["--vllm", "nowhere"], "vllm is 'nowhere'"),
        (["--gguf", "/no/such/file"], "gguf is"),
        (["--dtype", "int3"], "dtype is 'int3'"),
        (["--hf-dtype", "int3"], "hf-dtype is 'int3'"),
        (["--device", "tpu"], "device is 'tpu'"),
        (["--draft-precision", "int3"], "draft-precision is 'int3'"),
        (["--draft", "/no/such/folder"], "no folder here and no hub id"),
        (["--preset", "copy"], "leave one out"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_loaded(folders, arguments, words):
    args = build_parser().parse_args(["bench", "--target", folders["target"], *arguments])
    with pytest.raises(BadRequest, match=words) as caught:
        args.command.run(args)
    assert "\n" not in str(caught.value)


def test_progress_in_a_pipe_is_a_line_now_and_then(capsys):
    progress = _Progress()
    for text in ("Starting plain", *(f"Prompt {i} of 30" for i in range(1, 31))):
        progress(text)
    progress.end()
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["Starting plain", "Prompt 1 of 30", "Prompt 11 of 30", "Prompt 21 of 30"]
    assert captured.out == ""
