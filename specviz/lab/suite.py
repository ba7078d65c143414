"""Prompt suites: JSON Lines, an object with `prompt` and `category` a line. Other fields are left alone."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.errors import BadRequest
from specviz.presets import PRESETS_DIR
from specviz.trace.checks import shown

DEFAULT_SUITE = PRESETS_DIR / "suite.jsonl"

MAX_BYTES = 16 * 2**20
MAX_PROMPTS = 10_000
MAX_PROMPT_CHARACTERS = 200_000
MAX_CATEGORY_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class SuitePrompt:
    """One prompt as its author wrote it, and the kind of task it is."""

    prompt: str
    category: str


def read_suite(path: str | Path = DEFAULT_SUITE, limit: int | None = None) -> list[SuitePrompt]:
    """The prompts of a suite, one of each category in turn, so that the first few are a fair sample of all.

    Args:
        limit: take only this many; None = all.

    Raises:
        BadRequest: not readable, too large, empty, or wrong in a line, which is named.
    """
    if limit is not None and limit < 1:
        raise BadRequest(f"limit is {limit}: give the number of prompts to take, 1 or more.")
    prompts = _in_turn(_parse(_read(Path(path)), shown(Path(path).name)))
    if not prompts:
        raise BadRequest(f"{shown(Path(path).name)} has no prompts: write an object with prompt and category a line.")
    return prompts[:limit]


def _read(path: Path) -> str:
    name = shown(path.name)
    try:
        if not path.is_file():
            raise BadRequest(f"There is no suite file {shown(str(path))}: name a JSON Lines file with prompts.")
        if path.stat().st_size > MAX_BYTES:
            raise BadRequest(f"{name} is larger than {MAX_BYTES // 2**20} MiB: split the suite.")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadRequest(f"{name} cannot be read ({error.strerror}): name a readable file.") from None
    except UnicodeDecodeError as error:
        raise BadRequest(f"{name} is not UTF-8 at byte {error.start}: save it as UTF-8.") from None


def _parse(text: str, name: str) -> list[SuitePrompt]:
    prompts = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            prompts.append(_parse_line(line, f"{name}, line {number}"))
        if len(prompts) > MAX_PROMPTS:
            raise BadRequest(f"{name} has more than {MAX_PROMPTS} prompts: split the suite.")
    return prompts


def _parse_line(line: str, where: str) -> SuitePrompt:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        why = getattr(error, "msg", "too deep or too large a value")
        raise BadRequest(f"{where} is not JSON ({why}): write one object a line.") from None
    if not isinstance(entry, dict):
        raise BadRequest(f"{where} is {shown(entry)}: write an object with prompt and category.")
    return SuitePrompt(
        prompt=_text(entry, "prompt", MAX_PROMPT_CHARACTERS, where),
        category=_text(entry, "category", MAX_CATEGORY_CHARACTERS, where),
    )


def _text(entry: dict[str, Any], key: str, longest: int, where: str) -> str:
    if key not in entry:
        raise BadRequest(f"{where} has no {key}: every line needs prompt and category.")
    value = entry[key]
    if not isinstance(value, str) or not value.strip():
        raise BadRequest(f"{where}: {key} is {shown(value)}: give a text that is not empty.")
    if len(value) > longest:
        raise BadRequest(f"{where}: {key} has {len(value)} characters: give at most {longest}.")
    if any(0xD800 <= ord(character) <= 0xDFFF for character in value):
        raise BadRequest(f"{where}: {key} has a lone surrogate, which no text has: remove it.")
    return value


def _in_turn(prompts: list[SuitePrompt]) -> list[SuitePrompt]:
    categories = dict.fromkeys(prompt.category for prompt in prompts)
    columns = ([prompt for prompt in prompts if prompt.category == category] for category in categories)
    return [prompt for row in itertools.zip_longest(*columns) for prompt in row if prompt is not None]
