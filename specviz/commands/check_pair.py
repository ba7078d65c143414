"""`specviz check-pair TARGET DRAFT`: may these two work together, and every reason. Loads no weights."""

from __future__ import annotations

import argparse
import json

from rich.text import Text

from specviz.engine.draft_facts import find_draft_folder
from specviz.engine.embedded import EMBEDDED_NAME, is_embedded_source
from specviz.errors import BadRequest
from specviz.trace.terminal import PipeFriendlyConsole
from specviz.trace.visible_text import visible_text

NAME = "check-pair"
HELP = "say whether a draft fits a target, and why"

STYLES = {"ok": ("green", "✓"), "slow": ("yellow", "!"), "refused": ("red", "✗")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help=f"a folder, a hub id, or embedded ({EMBEDDED_NAME})")
    parser.add_argument(
        "draft", metavar="DRAFT", help="a model or draft folder, a hub id, a shipped draft, or embedded"
    )
    parser.add_argument(
        "--dtype",
        default="auto",
        help="of the target: auto (int8 for the embedded one where this machine can), int8, bfloat16, float16 or float32; "
        "for the memory and the cost",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Returns 0 whatever the verdict is: `ok`, `slow` or `refused`."""
    import torch

    from specviz.engine.draft_files import read_draft, read_embedding
    from specviz.engine.loader import (
        TARGET_PRECISIONS,
        choose_device,
        choose_dtype,
        locate,
        takes_lean_path,
    )
    from specviz.engine.pairing import inspect_candidate, judge_pair

    if args.dtype not in TARGET_PRECISIONS:
        raise BadRequest(f"dtype is {args.dtype!r}: choose one of {', '.join(TARGET_PRECISIONS)}.")
    device = choose_device("auto")
    dtype = choose_dtype(args.dtype, device)
    folder = find_draft_folder(args.draft)
    source, name = locate(args.target)
    is_embedded = is_embedded_source(args.target)
    embedding = read_embedding(source) if is_embedded or folder is not None else None
    lean_embedding = None
    if takes_lean_path(args.dtype, device, is_embedded=is_embedded):
        lean_embedding = embedding.dtype if is_embedded else torch.float32  # as the loader has it
    target = inspect_candidate(source, name, dtype, lean_embedding=lean_embedding)
    if folder is not None:
        from specviz.engine.draft_pairing import judge_draft

        verdict = judge_draft(target, read_draft(folder), embedding).to_dict()
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
                f"  {role}: weights {weights:,.0f} MiB in {memory['dtype']}, KV {kv:,.1f} MiB per 1,000 tokens (derived)"
            )
        )
    style, glyph = STYLES[verdict["verdict"]]
    console.print(Text(f"Verdict: {glyph} {verdict['verdict']}", f"bold {style}"))
