"""The stage's scripts and style as text: for the page, and for a page that works without a server."""

from __future__ import annotations

from functools import cache
from pathlib import Path

STAGE_DIR = Path(__file__).resolve().parents[2] / "assets" / "stage"

# In the order in which they need each other; `gradio_host.js` is left out where there is no Gradio.
STAGE_SCRIPTS = (
    "namespace.js",
    "vocabulary.js",
    "reducer.js",
    "choreography.js",
    "player.js",
    "protocol.js",
    "figures.js",
    "pieces.js",
    "sentence.js",
    "dom.js",
    "keyboard.js",
    "view_source.js",
    "view_text.js",
    "view_round.js",
    "view_caches.js",
    "view_figures.js",
    "view_proof.js",
    "view_transport.js",
    "stage.js",
)


@cache
def stage_script() -> str:
    """All of the stage as one classic script; it declares the one name `SpecViz`."""
    return "\n".join((STAGE_DIR / name).read_text(encoding="utf-8") for name in STAGE_SCRIPTS)


@cache
def gradio_host_script() -> str:
    """What connects the stage with a Gradio component."""
    return (STAGE_DIR / "gradio_host.js").read_text(encoding="utf-8")


@cache
def stage_css() -> str:
    """The stage's style sheet; every rule is scoped to the stage."""
    return (STAGE_DIR / "stage.css").read_text(encoding="utf-8")
