"""The reader: takes every valid trace, and refuses the rest in one sentence, whatever it is."""

from __future__ import annotations

import copy
import io
import json
import os
import random
import time
import tracemalloc
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import specviz.trace
from specviz.errors import BadRequest
from specviz.trace.limits import DEFAULT_LIMITS
from specviz.trace.reader import read_trace
from tests.trace.sample_traces import FIRST_DIFFERENCE, all_traces, story, to_lines

TRACES = all_traces()
SCHEMA_PATH = Path(specviz.trace.__file__).with_name("trace-v1.schema.json")


@lru_cache
def schema_validator() -> Draft202012Validator:
    schema = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def assert_refused(source, *words: str, limits=DEFAULT_LIMITS) -> str:
    """One sentence for a user, with each of the words in it."""
    with pytest.raises(BadRequest) as caught:
        read_trace(source, limits)
    message = str(caught.value)
    assert message.isprintable() and len(message) < 500, message
    for word in words:
        assert word in message
    return message


def changed(change, trace="greedy") -> bytes:
    """The lines of a valid trace after `change(events)`."""
    events = copy.deepcopy(TRACES[trace])
    change(events)
    return to_lines(events)


# -- what is right


@pytest.mark.parametrize("name", TRACES)
def test_every_valid_trace_is_read_as_it_is(name):
    trace = read_trace(to_lines(TRACES[name]))
    assert trace == TRACES[name]
    assert not trace.is_incomplete


@pytest.mark.parametrize("name", TRACES)
def test_the_schema_agrees_with_what_the_reader_takes(name):
    for event in TRACES[name]:
        schema_validator().validate(event)


def test_path_bytes_lines_and_open_files_are_all_read(tmp_path):
    data = to_lines(TRACES["unicode"])
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    with path.open("rb") as binary, path.open(encoding="utf-8") as as_text:
        sources = [path, str(path), data, data.splitlines(keepends=True), data.decode().split("\n"), binary, as_text]
        for source in sources:
            assert read_trace(source) == TRACES["unicode"]


@pytest.mark.parametrize(
    "dress",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"\n" + data.replace(b"\n", b"\n\n"),
        lambda data: data.removesuffix(b"\n"),
    ],
    ids=["byte order mark", "CRLF", "blank lines", "no last line end"],
)
def test_harmless_differences_of_editors_are_borne(dress):
    trace = read_trace(dress(to_lines(TRACES["greedy"])))
    assert trace == TRACES["greedy"] and not trace.is_incomplete


def test_raw_line_separators_inside_a_text_do_not_end_a_line():
    lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in TRACES["unicode"])
    assert "\u2028" in lines and read_trace(lines.encode()) == TRACES["unicode"]


def test_unknown_fields_are_kept_and_unknown_events_left_out():
    events = copy.deepcopy(TRACES["greedy"])
    events[2]["draft"][0]["exit_layer"] = 12
    events[2]["request_id"] = {"of": ["a", "batch", None, 1.5, True]}
    with_blocks = [*events[:3], {"type": "block_allocated", "block": 3}, *events[3:], {"type": "late"}]
    assert read_trace(to_lines(with_blocks)) == events
    for event in with_blocks:
        schema_validator().validate(event)


# -- killed runs


def test_a_trace_cut_at_any_byte_gives_its_whole_lines_or_one_sentence():
    events = TRACES["unicode"]
    lines = [json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events]
    data = b"".join(lines)
    for length in range(0, len(data), 7):
        # A line is whole once its last brace is there, line end or not.
        whole = sum(sum(map(len, lines[: i + 1])) - 1 <= length for i in range(len(lines)))
        if whole == 0:
            assert_refused(data[:length])
            continue
        trace = read_trace(data[:length])
        assert trace == events[:whole]
        assert trace.is_incomplete == (whole < len(events))


def test_a_whole_run_with_a_broken_off_identity_is_incomplete():
    trace = read_trace(to_lines(TRACES["greedy"])[:-10])
    assert trace[-1]["type"] == "run_finished" and trace.is_incomplete


@pytest.mark.parametrize("rest", [b"hello", b'{"type": "round"\n', b"\x00\x00\x00"])
def test_other_rubbish_at_the_end_is_refused(rest):
    assert_refused(to_lines(story().events) + rest, "line 7", "JSON")


# -- what is wrong, and the schema can say


def drop(*path):
    def change(events):
        value = events
        for key in path[:-1]:
            value = value[key]
        del value[path[-1]]

    return change


def put(value, *path):
    def change(events):
        place = events
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


MALFORMED = {
    "status unknown": (put("maybe", 2, "draft", 0, "status"), "draft[0].status", "'maybe'", "accepted"),
    "status missing": (drop(2, "draft", 0, "status"), "draft[0].status", "missing"),
    "id is text": (put("7", 2, "draft", 1, "id"), "draft[1].id", "'7'"),
    "id is true": (put(True, 2, "draft", 1, "id"), "draft[1].id", "true"),
    "id negative": (put(-1, 2, "draft", 1, "id"), "draft[1].id", "-1"),
    "id too large": (put(2**31, 2, "draft", 1, "id"), "draft[1].id"),
    "id with a fraction": (put(1.5, 2, "draft", 1, "id"), "draft[1].id"),
    "text is a number": (put(3, 2, "draft", 1, "text"), "draft[1].text"),
    "bytes are not hex": (put("xyz", 2, "draft", 1, "bytes"), "draft[1].bytes"),
    "bytes are half": (put("f", 2, "draft", 1, "bytes"), "draft[1].bytes"),
    "special is 1": (put(1, 2, "draft", 1, "special"), "draft[1].special"),
    "probability above 1": (put(1.2, 2, "draft", 0, "draft_prob"), "draft[0].draft_prob", "1.2"),
    "probability negative": (put(-0.1, 2, "draft", 0, "target_prob"), "draft[0].target_prob"),
    "accept_prob above 1": (put(1.01, 2, "draft", 0, "accept_prob"), "draft[0].accept_prob"),
    "u above 1": (put(2, 2, "draft", 0, "u"), "draft[0].u"),
    "top entry too short": (put([[1, "a"]], 2, "draft", 0, "draft_top"), "draft[0].draft_top[0]", "a list of 2"),
    "top entry in another order": (put([["a", 1, 0.5]], 2, "draft", 0, "draft_top"), "draft_top[0][0]"),
    "top is an object": (put({}, 2, "draft", 0, "target_top"), "target_top", "an object"),
    "void token with a probability": (put(0.5, 2, "draft", 4, "target_prob"), "draft[4].target_prob", "discarded"),
    "void token with a die": (put(0.5, 2, "draft", 4, "u"), "draft[4].u"),
    "two rejected": (put("rejected", 2, "draft", 4, "status"), "draft[4].status"),
    "draft is null": (put(None, 2, "draft"), "draft is null"),
    "draft_stop unknown": (put("tired", 2, "draft_stop"), "draft_stop"),
    "extra missing": (drop(2, "extra"), "extra is missing"),
    "extra null after a rejection": (put(None, 2, "extra"), "extra"),
    "correction called bonus": (put("bonus", 2, "extra", "kind"), "extra.kind", "correction"),
    "bonus called plain": (put("plain", 3, "extra", "kind"), "extra.kind", "bonus"),
    "plain called correction": (put("correction", 4, "extra", "kind"), "extra.kind", "plain"),
    "nothing drafted and nothing said": (put(None, 4, "extra"), "extra"),
    "committed empty": (put([], 2, "committed"), "committed"),
    "cache is a number": (put(7, 2, "cache", "target"), "cache.target"),
    "cache without a peak": (drop(2, "cache", "target", "peak"), "cache.target.peak"),
    "seconds negative": (put(-1, 2, "seconds", "draft"), "seconds.draft"),
    "seconds without end": (put(1e300, 2, "seconds", "draft"), "seconds.draft"),
    "round is 0": (put(0, 2, "round"), "round"),
    "t missing": (drop(2, "t"), "t is missing"),
    "type missing": (drop(2, "type"), "type is missing"),
    "type is a list": (put([], 2, "type"), "type"),
    "mode unknown": (put("magic", 0, "mode"), "mode", "'magic'"),
    "prompt without ids": (drop(0, "prompt", "token_ids"), "prompt.token_ids"),
    "kv bytes as text": (put("46080", 0, "target", "kv_bytes_per_position"), "target.kv_bytes_per_position"),
    "drafter without a kind": (drop(0, "drafter", "kind"), "drafter.kind"),
    "settings is a list": (put([], 0, "settings"), "settings"),
    "reason unknown": (put("bored", -2, "reason"), "reason", "'bored'"),
    "counts without cut": (drop(-2, "counts", "cut"), "counts.cut"),
    "count negative": (put(-1, -2, "counts", "accepted"), "counts.accepted"),
    "identical is text": (put("yes", -1, "identical"), "identical"),
    "identical false without a place": (put(False, -1, "identical"), "first_difference"),
    "identical null without a reason": (put(None, -1, "identical"), "why"),
    "identical true with a difference": (put(FIRST_DIFFERENCE, -1, "first_difference"), "first_difference"),
    "compared with something else": (put("luck", -1, "against"), "against"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_events_are_refused_by_reader_and_schema_alike(name):
    change, *words = MALFORMED[name]
    events = copy.deepcopy(TRACES["greedy"])
    change(events)
    assert_refused(to_lines(events), "line ", *words)
    assert not all(schema_validator().is_valid(event) for event in events)


# -- what is wrong between fields and events


def swap_rounds(events):
    events[2], events[3] = events[3], events[2]


INCONSISTENT = {
    "rounds out of order": (swap_rounds, "round is 2", "next round is 1"),
    "a round is lacking": (drop(3), "round is 3", "next round is 2"),
    "a second start": (lambda events: events.insert(1, events[0]), "line 2", "run_started"),
    "a second prefill": (lambda events: events.insert(2, events[1]), "line 3", "prefill"),
    "a second end": (lambda events: events.insert(-1, events[-2]), "line 8", "ended"),
    "a round after the end": (lambda events: events.insert(-1, {**events[2], "round": 5, "t": 99}), "ended"),
    "identity without an end": (drop(-2), "identity", "run_finished"),
    "a second identity": (lambda events: events.append(events[-1]), "nothing comes after identity"),
    "committed is another token": (put([0, 1, 2, 3], 2, "committed"), "committed"),
    "token_ids are others": (put([1, 2], -2, "token_ids"), "token_ids"),
    "counts are a lie": (put(99, -2, "counts", "accepted"), "counts.accepted", "99"),
    "after above the peak": (put(10_000, 2, "cache", "target", "after"), "cache.target.after", "peak"),
    "time runs backwards": (put(0.0001, 3, "t"), "t is 0.0001", "earlier"),
    "accepted after rejected": (put("accepted", 2, "draft", 4, "status"), "draft[4].status", "after rejected"),
    "cut first": (put("cut", 3, "draft", 0, "status"), "draft[0].status"),
    "discarded first": (put("discarded", 2, "draft", 0, "status"), "draft[0].status"),
    "id unknown in a run of our own": (put(None, 2, "draft", 0, "id"), "draft[0].id", "served"),
    "times unknown in a run of our own": (put(None, 2, "seconds", "draft"), "seconds.draft", "served"),
    "prefill commits in a run of our own": (put([5], 1, "committed"), "committed", "server"),
    "prompt empty": (lambda events: events[0]["prompt"].update(token_ids=[], pieces=[]), "prompt.token_ids"),
    "pieces lacking": (put(["Once"], 0, "prompt", "pieces"), "prompt.pieces"),
    "special index too large": (put([3], 0, "prompt", "special"), "prompt.special[0]"),
    "bytes for no token": (put({"x": "00"}, 0, "prompt", "bytes"), "prompt.bytes"),
    "more reused than there is": (put(4, 0, "prompt", "reused"), "prompt.reused"),
}


@pytest.mark.parametrize("name", INCONSISTENT)
def test_inconsistent_traces_are_refused(name):
    change, *words = INCONSISTENT[name]
    assert_refused(changed(change), "line ", *words)


# -- versions, and files that are no traces


@pytest.mark.parametrize("version", [2, 0, "1", 1.0, True, None])
def test_another_version_is_refused_with_the_versions_known(version):
    assert_refused(changed(put(version, 0, "schema")), "schema", "versions known here are: 1", "update SpecViz")


def test_another_version_is_named_before_anything_else_is_asked_of_it():
    assert_refused(b'{"type": "run_started", "schema": 7, "everything": "else differs"}\n', "schema is 7")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["no event"]),
        (b"\n\n", ["no event"]),
        (b"[]\n", ["a list of 0", "JSON object"]),
        (b'{"hello": "world"}\n', ["run_started"]),
        (b"hello\n", ["JSON"]),
        (b"\x1f\x8b\x08\x00rest", ["compressed"]),
        (b"PK\x03\x04rest", ["compressed"]),
        ("{}".encode("utf-16"), ["UTF-16"]),
        (b'{"a": "\xff"}\n', ["UTF-8"]),
        (b'{"type": NaN}\n', ["NaN"]),
        (b'{"type": -Infinity}\n', ["Infinity"]),
        (b'{"type": "run_started", "type": "round"}\n', ["type", "twice"]),
        (b'{"a": 1' + b"0" * 5000 + b"}\n", ["digits"]),
        (b'{"a": "\\ud83d"}\n', ["surrogate"]),
        (b"[" * 100_000 + b"\n", ["nested"]),
        (b'{"a":' * 100_000 + b"\n", ["nested"]),
    ],
)
def test_other_files_are_refused_with_the_reason(data, words):
    assert_refused(data, *words)


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n",
        b"# Notes\n",
        b'{"prompt": "a"}\n',
        b'{\n  "a": 1\n}\n',
        b"[1, 2]\n",
        b"\x00" * 3000 + b"\n",
    ],
)
def test_another_kind_of_file_is_told_what_a_trace_is(data):
    limits = replace(DEFAULT_LIMITS, max_line_bytes=2000)
    said = assert_refused(data, "is not a trace of SpecViz", "run_started", "generate --trace FILE", limits=limits)
    assert "UTF-8: " not in said and "correct that line" not in said


def test_a_first_line_that_is_damaged_is_told_as_such():
    assert_refused(b'{"type": "run_started", "schema": 1,,}\n', "line 1", "correct that line")
    assert_refused(to_lines(TRACES["greedy"])[:-1] + b"\n# Notes\n", "correct that line")


def test_paths_that_cannot_be_read_are_refused(tmp_path):
    assert_refused(tmp_path / "none.jsonl", "There is no file", "none.jsonl")
    assert_refused(tmp_path, "folder")
    assert_refused("a\x00b", "path")
    assert_refused("x" * 5000, "path")
    os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", "regular file")
    assert_refused("/dev/zero", "regular file")
    nasty = tmp_path / "\x1b[31mred.jsonl"
    nasty.write_bytes(b"hello\n")
    assert_refused(nasty, "line 1")


# -- sizes


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"max_bytes": 1000}, "MB"),
        ({"max_line_bytes": 500}, "bytes allowed"),
        ({"max_events": 3}, "lines"),
        ({"max_values": 100}, "values"),
        ({"max_text": 5}, "characters"),
        ({"max_token_text": 3}, "characters"),
        ({"max_draft": 2}, "entries"),
        ({"max_top": 1}, "entries"),
        ({"max_tokens": 2}, "entries"),
    ],
)
def test_every_limit_is_kept(limits, word, tmp_path):
    data = to_lines(TRACES["greedy"])
    assert_refused(data, word, limits=replace(DEFAULT_LIMITS, **limits))
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    assert_refused(path, word, limits=replace(DEFAULT_LIMITS, **limits))


def test_fields_that_nobody_knows_are_bounded_too():
    nested = []
    for _ in range(20):
        nested = [nested]
    for value, word in (
        (nested, "nested"),
        ("x" * 5_000_000, "characters"),
        ([0] * 10_001, "entries"),
        (10**400, "number"),
    ):
        assert_refused(changed(put(value, 2, "new_field")), "new_field", word)
        assert_refused(to_lines([*TRACES["greedy"][:2], {"type": "new", "new_field": value}]), "new_field", word)
    assert_refused(changed(lambda events: None).replace(b'"round": 1', b'"x": 1e999, "round": 1'), "x is inf")


def test_a_bomb_of_tiny_values_is_refused_before_it_takes_memory():
    bomb = b'{"type":"run_started","schema":1,"x":[' + b"[]," * 5_000_000 + b"[]]}\n"
    tracemalloc.start()
    assert_refused(bomb, "values")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * len(bomb)


@pytest.mark.parametrize(
    "data",
    [
        b"\n" * 20_000_000,
        b'{"type": "run_started", "schema": 1, '
        + b", ".join(b'"k%d": 1' % (i % 199_999) for i in range(200_000))
        + b"}\n",
        b'{"a": "' + b"\\" * 16_000_000,
        b'{"a": ' + b"-" * 16_000_000,
    ],
    ids=["blank lines", "a key given twice among many", "backslashes", "minus signs"],
)
def test_hostile_files_are_refused_quickly(data):
    started = time.perf_counter()
    assert_refused(data)
    assert time.perf_counter() - started < 5


def test_an_endless_line_is_not_taken_in_whole():
    class Endless(io.RawIOBase):
        num_given = 0

        def readline(self, size=-1):
            assert 0 <= size <= DEFAULT_LIMITS.max_line_bytes + 1
            self.num_given += size
            return b"x" * size

    endless = Endless()
    assert_refused(endless, "longer than")
    assert endless.num_given <= 2 * DEFAULT_LIMITS.max_line_bytes


# -- fuzzing


def read_or_refuse(data: bytes) -> None:
    try:
        read_trace(data)
    except BadRequest as error:
        assert str(error).isprintable() and len(str(error)) < 1000


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_random_bytes_never_crash_it(data):
    read_or_refuse(data)


@given(st.sampled_from(sorted(TRACES)), st.randoms(use_true_random=False), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_flipped_bytes_never_crash_it(name, dice: random.Random, num_flips):
    data = bytearray(to_lines(TRACES[name]))
    for _ in range(num_flips):
        data[dice.randrange(len(data))] = dice.choice([*b'{}[]",:0\\n\n-', dice.randrange(256)])
    read_or_refuse(bytes(data))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def all_places(value):
    """Every (container, key) of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from all_places(inner)


@given(st.sampled_from(sorted(TRACES)), st.data(), JSON_VALUES)
@settings(max_examples=400, deadline=None)
def test_any_value_in_any_place_is_refused_or_shown_without_a_crash(name, data, value):
    from specviz.trace.summary import summarize
    from specviz.trace.terminal import TraceTerminal

    events = copy.deepcopy(TRACES[name])
    places = list(all_places(events))
    container, key = places[data.draw(st.integers(0, len(places) - 1))]
    container[key] = value
    try:
        trace = read_trace(to_lines(events))
    except BadRequest:
        return
    terminal = TraceTerminal(io.StringIO(), width=60)
    for event in trace:
        terminal.show(event)
    terminal.show_summary(trace, trace.is_incomplete)
    json.dumps(summarize(trace), allow_nan=False)
    for event in trace:
        schema_validator().validate(event)
