"""The writer: what was live is what is read, and no way to end a run leaves a broken file."""

from __future__ import annotations

import copy
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.errors import BadRequest, RunFailed
from specviz.trace.reader import read_trace
from specviz.trace.writer import TraceWriter, event_line, record, require_writable
from tests.trace.sample_traces import TraceBuilder, all_traces, story, to_lines

TRACES = all_traces()
ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


@pytest.mark.parametrize("name", TRACES)
def test_live_recorded_and_read_are_the_same(name, path):
    live = copy.deepcopy(TRACES[name])
    assert list(record(iter(live), path, keep_draft_tokens=True)) == TRACES[name]
    assert read_trace(path) == TRACES[name]


def test_draft_token_events_are_yielded_and_not_written_by_default(path):
    assert list(record(TRACES["live"], path)) == TRACES["live"]
    assert read_trace(path) == [event for event in TRACES["live"] if event["type"] != "draft_token"]


def test_each_line_is_in_the_file_as_soon_as_its_event_is_seen(path):
    for number, event in enumerate(record(TRACES["greedy"], path), start=1):
        lines = path.read_bytes().split(b"\n")
        assert lines[-1] == b"" and len(lines) == number + 1
        assert json.loads(lines[-2]) == event


def test_the_file_is_json_lines_for_every_splitter(path):
    list(record(TRACES["unicode"], path))
    text = path.read_bytes().decode("utf-8")
    assert text.endswith("\n") and len(text.splitlines()) == len(TRACES["unicode"])
    assert "👩\u200d🚀" in text and "\u2028" not in text and "NaN" not in text


# -- ends that were not planned


def broken_off(error: BaseException):
    yield from story().events
    raise error


def test_a_consumer_that_leaves_closes_the_run_and_the_trace(path):
    closed = []

    def run():
        try:
            yield from story().finish("length").events
        finally:
            closed.append(True)

    stream = record(run(), path)
    for _ in range(4):
        next(stream)
    stream.close()
    trace = read_trace(path)
    assert closed and not trace.is_incomplete
    assert trace[:-1] == story().events[:4]
    assert trace[-1]["reason"] == "cancelled"
    assert trace[-1]["text"] == trace[-1]["output_text"] == " the quick brown dog ran far away"


def test_an_interrupt_ends_the_trace_as_cancelled(path):
    with pytest.raises(KeyboardInterrupt):
        list(record(broken_off(KeyboardInterrupt()), path))
    trace = read_trace(path)
    assert trace[-1]["type"] == "run_finished" and trace[-1]["reason"] == "cancelled"
    assert trace[-1]["counts"] == story().fold.counts
    assert trace[-1]["seconds"]["waiting"] is None


def test_a_cancelled_end_leaves_special_tokens_out_of_the_output(path):
    with TraceWriter(path) as writer:
        for event in TraceBuilder().round([" a"], extra="<|im_end|>", special=True).events:
            writer.write(event)
    end = read_trace(path)[-1]
    assert end["text"] == " a<|im_end|>" and end["output_text"] == " a"


@pytest.mark.parametrize(
    ("error", "told"),
    [(RunFailed("The logits are not numbers."), "The logits are not numbers."), (KeyError("cache"), "KeyError")],
)
def test_an_error_ends_the_trace_as_failed(path, error, told):
    with pytest.raises(type(error)):
        list(record(broken_off(error), path))
    end = read_trace(path)[-1]
    assert end["type"] == "run_failed" and told in end["error"] and end["round"] == 5


def test_a_run_that_told_its_own_failure_gets_no_second_end(path):
    def run():
        yield from story().fail("Out of memory.").events
        raise RunFailed("Out of memory.")

    with pytest.raises(RunFailed):
        list(record(run(), path))
    assert read_trace(path) == story().fail("Out of memory.").events


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_ended_leaves_a_readable_trace(path, how):
    script = (
        "import sys, time\n"
        "from specviz.trace.writer import record\n"
        "from tests.trace.sample_traces import TraceBuilder\n"
        "def run():\n"
        "    build = TraceBuilder()\n"
        "    yield from build.events\n"
        "    while True:\n"
        "        build.round([' a'], ' b', extra=' c')\n"
        "        yield build.events[-1]\n"
        "        time.sleep(0.001)\n"
        "for event in record(run(), sys.argv[1]): pass\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, path], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not (path.exists() and path.read_bytes().count(b"\n") > 5):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(how)
        process.wait(30)
    finally:
        process.kill()
    trace = read_trace(path)
    assert trace.is_incomplete == (how == signal.SIGKILL)
    assert len(trace) > 5


# -- places that cannot be written


@pytest.mark.parametrize("check", [require_writable, TraceWriter, lambda path: next(record(iter([]), path))])
def test_a_place_that_cannot_be_written_is_refused_at_once(check, tmp_path):
    for place, word in (
        (tmp_path, "folder"),
        (tmp_path / "none" / "run.jsonl", "does not exist"),
        (tmp_path / ("x" * 300), "cannot be written"),
        ("/proc/version", "cannot be written"),
        ("a\x00b", "cannot be written"),
    ):
        with pytest.raises(BadRequest, match=word) as caught:
            check(place)
        assert str(caught.value).isprintable() and "Errno" not in str(caught.value)


def test_asking_whether_a_place_can_be_written_changes_nothing(path):
    require_writable(path)
    assert not path.exists()
    path.write_text("kept")
    require_writable(path)
    assert path.read_text() == "kept"


def test_an_earlier_trace_is_kept_until_there_is_a_new_event(path):
    path.write_bytes(to_lines(TRACES["greedy"]))
    with TraceWriter(path):
        pass
    assert read_trace(path) == TRACES["greedy"]
    with TraceWriter(path) as writer:
        for event in TRACES["plain"]:
            writer.write(event)
    assert read_trace(path) == TRACES["plain"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence():
    with pytest.raises(RunFailed, match="disk is full"):
        list(record(TRACES["greedy"], "/dev/full"))


def test_a_disk_that_fills_up_leaves_the_whole_lines(path, monkeypatch):
    writer = TraceWriter(path)
    writer.write(TRACES["greedy"][0])
    real = writer._file

    class Full:
        def write(self, data):
            raise OSError(28, "No space left on device")

        def close(self):
            real.close()

        def fileno(self):
            return real.fileno()

    writer._file = Full()
    with pytest.raises(RunFailed, match="disk is full"), writer:
        writer.write(TRACES["greedy"][1])
    assert real.closed
    trace = read_trace(path)
    assert trace == TRACES["greedy"][:1] and trace.is_incomplete


def test_writing_to_a_device_or_pipe_works():
    with TraceWriter(os.devnull) as writer:
        for event in TRACES["greedy"]:
            writer.write(event)


# -- values that JSON has no word for


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, {1, 2}, b"x"])
def test_what_is_not_json_is_never_written(path, value):
    events = copy.deepcopy(TRACES["greedy"])
    events[2]["seconds"]["draft"] = value
    with pytest.raises(RunFailed, match="round"):
        list(record(events, path))
    trace = read_trace(path)
    assert trace[-1]["type"] == "run_failed" and trace[:-1] == events[:2]


@given(st.text(st.characters(), max_size=20))
@settings(deadline=None)
def test_every_text_survives_and_lone_surrogates_break_nothing(text):
    line = event_line({"type": "later", "text": text})
    assert line.count(b"\n") == 1
    assert json.loads(line)["text"] == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_a_lone_surrogate_becomes_a_replacement_character(path):
    events = TraceBuilder().round(extra="\ud83d").finish().events
    list(record(events, path))
    assert read_trace(path)[2]["extra"]["text"] == "\ufffd"


def test_very_long_texts(path):
    events = TraceBuilder().round(extra="x" * 9_000).finish().events
    events[0]["prompt"]["text"] = "long " * 200_000
    list(record(events, path))
    assert read_trace(path) == events


def test_writing_is_cheap(path):
    """A round in light detail takes well under 3% of a round of 20 ms."""
    events = story("light").events
    with TraceWriter(path) as writer:
        for event in events[:2]:
            writer.write(event)
        started = time.process_time()
        for _ in range(500):
            writer.write(events[2])
        assert (time.process_time() - started) / 500 < 0.0006
