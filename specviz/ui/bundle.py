"""The stage's scripts and style as text: for the page, and for a page that works without a server."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

STAGE_DIR = Path(__file__).resolve().parents[2] / "assets" / "stage"

# In the order in which they need each other; what connects them with a page comes last, and apart.
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
    "plot_series.js",
    "plot_words.js",
    "plot_figures.js",
    "plot_theme.js",
    "plotly_source.js",
    "plot_save.js",
    "plot_card.js",
    "view_plots.js",
    "stage.js",
)
STAGE_STYLES = ("stage.css", "plots.css")


@cache
def stage_script() -> str:
    """All of the stage as one classic script; it declares the one name `SpecViz`."""
    return _joined(STAGE_SCRIPTS)


@cache
def gradio_host_script() -> str:
    """What connects the stage with a Gradio component."""
    return _joined(["gradio_host.js"])


@cache
def file_host_script() -> str:
    """What connects the stage with a page that carries its own run."""
    return _joined(["file_host.js"])


@cache
def stage_css() -> str:
    """The stage's style sheets; every rule is scoped to the stage."""
    return _joined(STAGE_STYLES)


@cache
def file_page_css() -> str:
    """The style of the page around a stage without a server."""
    return _joined(["file_page.css"])


def _joined(names: Iterable[str]) -> str:
    return "\n".join((STAGE_DIR / name).read_text(encoding="utf-8") for name in names)
