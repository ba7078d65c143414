"""Reading suites: the shipped one, those with other fields, and every way a file can be wrong."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from specviz.errors import BadRequest
from specviz.lab import suite
from specviz.lab.suite import read_suite

GOOD = '{"prompt": "a", "category": "x"}'


def write(tmp_path, text):
    path = tmp_path / "suite.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_shipped_suite_has_six_categories_of_eleven_prompts_or_more():
    prompts = read_suite()
    counts = Counter(prompt.category for prompt in prompts)
    assert set(counts) == {"chat", "code", "summarisation", "translation", "maths", "retrieval"}
    assert min(counts.values()) >= 11
    assert len({prompt.prompt for prompt in prompts}) == len(prompts)


def test_the_shipped_passages_are_long_enough_to_be_worth_reading():
    long = [prompt for prompt in read_suite() if prompt.category in ("summarisation", "retrieval")]
    assert all(80 <= len(prompt.prompt.split()) <= 280 for prompt in long)


def test_categories_come_in_turn_so_that_a_limit_takes_of_each(tmp_path):
    lines = [json.dumps({"prompt": f"{category}{i}", "category": category}) for category in "ab" for i in range(3)]
    lines.append(json.dumps({"prompt": "c0", "category": "c"}))
    path = write(tmp_path, "\n".join(lines))
    assert [prompt.prompt for prompt in read_suite(path)] == ["a0", "b0", "c0", "a1", "b1", "a2", "b2"]
    assert [prompt.prompt for prompt in read_suite(path, limit=3)] == ["a0", "b0", "c0"]


def test_other_fields_empty_lines_and_a_byte_order_mark_are_no_fault(tmp_path):
    path = write(tmp_path, b'\xef\xbb\xbf{"id": 7, "category": "qa", "prompt": "Why?", "turns": []}\r\n\n')
    (prompt,) = read_suite(path)
    assert (prompt.prompt, prompt.category) == ("Why?", "qa")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "line 2 is not JSON"),
        ("[" * 100_000, "line 2 is not JSON"),
        ("[1]", "line 2 is a list of 1: write an object"),
        ('{"category": "x"}', "line 2 has no prompt"),
        ('{"prompt": "a"}', "line 2 has no category"),
        ('{"prompt": "  ", "category": "x"}', "line 2: prompt is '  '"),
        ('{"prompt": 5, "category": "x"}', "line 2: prompt is 5"),
        ('{"prompt": "a", "category": null}', "line 2: category is null"),
        (r'{"prompt": "a\ud800", "category": "x"}', "line 2: prompt has a lone surrogate"),
        (json.dumps({"prompt": "a" * 200_001, "category": "x"}), "line 2: prompt has 200001 characters"),
        (json.dumps({"prompt": "a", "category": "x" * 61}), "line 2: category has 61 characters"),
    ],
)
def test_a_wrong_line_is_named_in_one_sentence(tmp_path, line, words):
    with pytest.raises(BadRequest, match=words) as caught:
        read_suite(write(tmp_path, f"{GOOD}\n{line}\n"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [("\n", "has no prompts"), (b"\xff", "not UTF-8 at byte 0")])
def test_a_file_that_is_no_suite(tmp_path, text, words):
    with pytest.raises(BadRequest, match=words):
        read_suite(write(tmp_path, text))


def test_bounds(tmp_path, monkeypatch):
    path = write(tmp_path, f"{GOOD}\n" * 3)
    monkeypatch.setattr(suite, "MAX_PROMPTS", 2)
    with pytest.raises(BadRequest, match="more than 2 prompts"):
        read_suite(path)
    monkeypatch.setattr(suite, "MAX_BYTES", 10)
    with pytest.raises(BadRequest, match="is larger than"):
        read_suite(path)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(BadRequest, match=f"limit is {limit}"):
        read_suite(limit=limit)


def test_no_such_file(tmp_path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(BadRequest, match="There is no suite file"):
            read_suite(path)
