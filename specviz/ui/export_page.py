"""A recorded run as one HTML file that plays anywhere: no server, no network, nothing beside it.

The file holds the stage's own scripts, the events, and plotly.js (packed). Its Content-Security-Policy
allows the two scripts by their hashes and nothing else, so that even a text which broke out of the data
could do nothing; and none breaks out, because the data is ASCII JSON without a single `<`.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
import stat
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from string import Template

from specviz import __version__
from specviz.errors import BadRequest, RunFailed
from specviz.events import Event, RunStarted
from specviz.trace.reader import shown_name
from specviz.trace.visible_text import shortened, visible_text
from specviz.ui.bundle import file_host_script, file_page_css, stage_css, stage_script
from specviz.ui.plotly_js import plotly_script

LONGEST_PROMPT = 60  # characters, in the line that says what the page is
DRAFTERS = {
    "draft_model": "a draft model",
    "prompt_lookup": "prompt lookup",
    "early_exit": "its own early layers",
    "draft_head": "a draft head",
}

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="SpecViz $version">
<link rel="icon" href="data:,">
<title>$title</title>
<style>$css</style>
</head>
<body>
<header class="sv-file"><h1>SpecViz</h1><p>$about</p></header>
<main id="stage"><noscript>This page needs JavaScript; everything that it runs is in this file.</noscript></main>
<script type="application/json" id="trace">$trace</script>
<script type="text/plain" id="plotly">$plotly</script>
<script>$script</script>
</body>
</html>
""")


def export_page(events: Sequence[Event]) -> str:
    """The page of a run; ASCII only where text of models is concerned.

    Args:
        events: a whole trace, `run_started` first.
    """
    script = "\n".join([stage_script(), file_host_script(), "SpecViz.hostInFile(document);"])
    return PAGE.substitute(
        policy=content_security_policy(script, plotly_script()),
        version=html.escape(__version__),
        title=html.escape(f"{one_line(events[0]['target']['name'])}: speculative decoding, recorded"),
        css=file_page_css() + stage_css(),
        about=html.escape(about(events[0])),
        trace=embedded_json(events),
        plotly=packed(plotly_script()),
        script=script,
    )


def write_page(page: str, path: str | os.PathLike[str]) -> int:
    """Write a page so that the file is there whole or not at all; an older one is replaced. Returns its bytes.

    Raises:
        BadRequest: the path cannot be written.
        RunFailed: the disk would not take it.
    """
    path = _writable(Path(path))
    content = page.encode("utf-8")
    partial = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as fault:
        partial.unlink(missing_ok=True)
        raise RunFailed(f"The page could not be written to {shown_name(path)} ({fault.strerror}).") from fault
    return len(content)


def embedded_json(value: object) -> str:
    """JSON that can stand in a `<script>` element: ASCII, lone surrogates as escapes, and no `<` or `>`."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def content_security_policy(*scripts: str) -> str:
    """Only these scripts, styles within the page, and pictures that it makes itself; no connection at all."""
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def about(started: RunStarted) -> str:
    """One line that says what the page is."""
    target, drafter = one_line(started["target"]["name"]), started["drafter"]["kind"]
    looks = " (lookup first)" if started["drafter"].get("lookup_first") else ""
    drafts = f" with {DRAFTERS.get(drafter, one_line(drafter))}{looks} as its drafter" if drafter != "none" else ""
    does = "continuing" if started["prompt"].get("raw") else "answering"
    prompt = shortened(one_line(started["prompt"]["text"]), LONGEST_PROMPT)
    when = one_line(started["created"])[:10]
    return (
        f"A recording of {target} {does} “{prompt}”{drafts}, made with SpecViz on {when}. "
        "It plays from this file alone: nothing is loaded and nothing is sent."
    )


@cache
def packed(text: str) -> str:
    """gzip in base64, the same for the same text."""
    return base64.b64encode(gzip.compress(text.encode("utf-8"), 9, mtime=0)).decode("ascii")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def one_line(text: object) -> str:
    """Any text as a single line of visible characters."""
    return visible_text(" ".join(str(text).split()))


def _writable(path: Path) -> Path:
    """The file that `path` leads to, if one may be written there."""
    try:
        path = path.resolve()
        if path.is_dir():
            raise BadRequest(f"The page cannot be written to {shown_name(path)}, which is a folder: add a file name.")
        if not path.parent.is_dir():
            raise BadRequest(
                f"The page cannot be written: the folder {shown_name(path.parent)} does not exist, create it first."
            )
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise BadRequest(
                f"The page cannot be written to {shown_name(path)}, which is no ordinary file: choose another path."
            )
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise BadRequest(
                f"The page cannot be written to {shown_name(path)} (Permission denied): choose another path."
            )
    except (OSError, ValueError, RuntimeError) as fault:
        reason = getattr(fault, "strerror", None) or "not a usable path"
        raise BadRequest(f"The page cannot be written to {shown_name(path)} ({reason}): choose another path.") from None
    return path
