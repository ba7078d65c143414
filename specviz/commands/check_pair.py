"""`specviz check-pair TARGET DRAFT`: may these two work together, and every reason. Loads no weights."""

from __future__ import annotations

import argparse
import json

from rich.text import Text

from specviz.engine.draft_facts import find_draft_folder
from specviz.trace.terminal import PipeFriendlyConsole
from specviz.trace.visible_text import visible_text

NAME = "check-pair"
HELP = "say whether a draft fits a target, and why"

STYLES = {"ok": ("green", "✓"), "slow": ("yellow", "!"), "refused": ("red", "✗")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help='a folder, a hub id, or "embedded"')
    parser.add_argument(
        "draft", metavar="DRAFT", help='a model or draft folder, a hub id, a shipped draft, or "embedded"'
    )
    parser.add_argument("--dtype", default="auto", help="auto, bfloat16, float16 or float32; for the memory figures")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Returns 0 whatever the verdict is: `ok`, `slow` or `refused`."""
    from specviz.engine.loader import choose_device, choose_dtype, locate
    from specviz.engine.pairing import inspect_candidate, judge_pair

    dtype = choose_dtype(args.dtype, choose_device("auto"))
    folder = find_draft_folder(args.draft)
    source, name = locate(args.target)
    target = inspect_candidate(source, name, dtype)
    if folder is not None:
        from specviz.engine.draft_files import read_draft, read_embedding
        from specviz.engine.draft_pairing import judge_draft

        verdict = judge_draft(target, read_draft(folder), read_embedding(source)).to_dict()
    else:
        verdict = judge_pair(target, inspect_candidate(*locate(args.draft), dtype)).to_dict()
    if args.json:
        print(json.dumps(verdict))
    else:
        _print(verdict)
    return 0


def _print(verdict: dict) -> None:
    console = PipeFriendlyConsole(highlight=False)
    for reason in verdict["reasons"]:
        style, glyph = STYLES[reason["level"]]
        console.print(Text(f"{glyph} {reason['level']:8}", style).append(visible_text(reason["text"]), "default"))
    for role, memory in verdict["memory"].items():
        weights, kv = memory["weight_bytes"] / 2**20, memory["kv_bytes_per_1000_tokens"] / 2**20
        console.print(
            Text(
                f"  {role}: weights {weights:,.0f} MiB, KV {kv:,.1f} MiB per 1,000 tokens in {memory['dtype']} (derived)"
            )
        )
    style, glyph = STYLES[verdict["verdict"]]
    console.print(Text(f"Verdict: {glyph} {verdict['verdict']}", f"bold {style}"))
