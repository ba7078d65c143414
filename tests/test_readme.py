"""The documents are true: examples run, commands parse, paths exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from specviz.__main__ import build_parser

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "specviz" / "ARCHITECTURE.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [block for found, block in fenced if found == language]


@pytest.mark.embedded
@pytest.mark.slow
def test_the_python_example_runs(embedded_dir, capsys):
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    last_line = capsys.readouterr().out.strip().splitlines()[-1]
    assert last_line.endswith("True"), "greedy output is identical to plain decoding"


def test_every_command_in_the_readme_parses():
    lines = [line.split("#")[0] for block in blocks("") for line in block.splitlines() if "-m specviz" in line]
    assert len(lines) >= 7
    for line in lines:
        build_parser().parse_args(shlex.split(line)[3:])


@pytest.mark.parametrize("text", [README, ARCHITECTURE], ids=["README", "ARCHITECTURE"])
def test_every_path_that_is_named_exists(text):
    named = set(
        re.findall(
            r"(?:^|[`(| \]])((?:specviz|assets|presets|tests|engine|drafters|trace|ui|commands)/[\w./*-]*)", text
        )
    )
    assert named
    for path in sorted(named):
        if path == "drafters/your_kind.py":
            continue
        found = [*ROOT.glob(path), *(ROOT / "specviz").glob(path)] if path.rstrip("/") else []
        assert found, f"{path} is named, and is not there"
