"""`specviz replay FILE`: a recorded run again, in the terminal or as a page of its own, with no model and no waiting."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import TextIO

from specviz.commands.arguments import real, whole
from specviz.commands.without_effect import idle_in_replay, note_without_effect
from specviz.errors import BadRequest
from specviz.events import Round
from specviz.trace.reader import Trace, read_trace, shown_path
from specviz.trace.summary import summarize
from specviz.trace.terminal import TraceTerminal, pauses

NAME = "replay"
HELP = "show a recorded run in the terminal, round by round, or write it as a page"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="a trace that `generate --trace FILE` wrote; - reads standard input"
    )
    parser.add_argument(
        "--speed",
        type=real("--speed", "above 0, 1 being the recorded pace"),
        metavar="X",
        help="replay at X times the recorded pace (1 is as it was); without it everything is shown at once",
    )
    parser.add_argument("--round", type=whole("--round", "from 1 on"), metavar="N", help="show only round N")
    parser.add_argument(
        "--html",
        metavar="PAGE",
        help="write the run as one HTML file that plays in any browser, without server and network",
    )
    parser.add_argument("--json", action="store_true", help="print the run's summary as one JSON object instead")


def run(args: argparse.Namespace) -> int:
    """Returns 0.

    Raises:
        BadRequest: the file is no valid trace, the page cannot be written there, or --speed or --round has
            no meaning.
        RunFailed: the disk would not take the page.
    """
    if args.html is not None and (args.speed is not None or args.round is not None):
        raise BadRequest(
            "--speed and --round are for the terminal, and --html writes a page that has both: leave them out."
        )
    if args.speed is not None and not (math.isfinite(args.speed) and args.speed > 0):
        raise BadRequest(f"--speed is {args.speed:g}: give a number above 0, 1 being the recorded pace.")
    if args.html is None:
        note_without_effect(idle_in_replay(args))
    if args.html is not None:
        _refuse_page_path(Path(args.html))
    if args.file == "-":
        trace = read_trace(sys.stdin.buffer, name="standard input")
    else:
        trace = read_trace(args.file, name=shown_path(args.file))
    if args.html is not None:
        _write_page(trace, args.html, sys.stderr if args.json else sys.stdout)
    if args.json:
        _print_json(trace)
    elif args.html is None:
        _replay(trace, args.speed, args.round)
    return 0


def _print_json(trace: Trace) -> None:
    summary = {**summarize(trace), "incomplete": trace.is_incomplete}
    print(json.dumps(summary, allow_nan=False))  # ASCII only: safe for any terminal and any pipe


def _refuse_page_path(path: Path) -> None:
    """Raise BadRequest, with the path as it was given, where a page cannot be for want of a folder or a file name."""
    if path.is_dir():
        raise BadRequest(f"--html is {shown_path(path)}, which is a folder: add a file name.")
    if not path.parent.is_dir():
        raise BadRequest(
            f"--html is {shown_path(path)}: the folder {shown_path(path.parent)} does not exist, create it first."
        )


def _write_page(trace: Trace, path: str, output: TextIO) -> None:
    from specviz.ui.exit_page import export_exit_page
    from specviz.ui.export_page import export_page, write_page

    exit_run = trace[0].get("early_exit", {}).get("run")  # "map" or "timed": shown on the board, not on the stage
    num_bytes = write_page(export_exit_page([(exit_run, trace)]) if exit_run else export_page(trace), path)
    print(f"Wrote {path} ({num_bytes / 1e6:.1f} MB): open it in a browser, it needs nothing else.", file=output)


def _replay(trace: Trace, speed: float | None, only_round: int | None) -> None:
    terminal = TraceTerminal(sys.stdout)
    if only_round is not None:
        for event in trace:
            if event["type"] == "run_started":
                terminal.know(event)
        terminal.show_round(_round_of(trace, only_round))
        return
    for event, seconds in pauses(trace, speed or math.inf):
        if seconds > 0:
            time.sleep(seconds)
        terminal.show(event)
    terminal.show_summary(trace, trace.is_incomplete)


def _round_of(trace: Trace, number: int) -> Round:
    rounds = [event for event in trace if event["type"] == "round"]
    if not rounds:
        raise BadRequest(f"--round is {number}, and this trace has no round: leave --round out.")
    if not 1 <= number <= len(rounds):
        raise BadRequest(f"--round is {number}: this trace has the rounds 1 to {len(rounds)}.")
    return rounds[number - 1]
