"""The stage's scripts and style as text: for the page, and for a page that works without a server."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from specviz.glossary import term_for

STAGE_DIR = Path(__file__).resolve().parents[2] / "assets" / "stage"
BOARD_DIR = STAGE_DIR.with_name("early_exit")

# In the order in which they need each other; what connects them with a page comes last, and apart.
STAGE_SCRIPTS = (
    "namespace.js",
    "vocabulary.js",
    "reducer.js",
    "choreography.js",
    "player.js",
    "protocol.js",
    "address.js",
    "figures.js",
    "pieces.js",
    "sentence.js",
    "inspection.js",
    "inspection_words.js",
    "dom.js",
    "keyboard.js",
    "floating.js",
    "glossary_tips.js",
    "drafter_facts.js",
    "dice_gauge.js",
    "round_tokens.js",
    "round_pass.js",
    "text_lines.js",
    "chip_keys.js",
    "view_source.js",
    "view_turns.js",
    "view_text.js",
    "view_round.js",
    "view_caches.js",
    "view_figures.js",
    "view_drafter.js",
    "view_proof.js",
    "view_transport.js",
    "token_card.js",
    "inspector_mask.js",
    "inspector_parts.js",
    "exit_part.js",
    "view_inspector.js",
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
STAGE_STYLES = ("stage.css", "turns.css", "inspector.css", "tips.css", "plots.css")

# What the board of the Early exit tab takes from the stage, and what is its own; in the order of need too.
BOARD_BASE = (
    *("namespace.js", "vocabulary.js", "reducer.js", "protocol.js", "figures.js", "pieces.js", "sentence.js"),
    *(
        "inspection.js",
        "dom.js",
        "floating.js",
        "glossary_tips.js",
        "plot_theme.js",
        "plotly_source.js",
        "plot_save.js",
    ),
)
BOARD_SCRIPTS = (
    "exit_rule.js",
    "exit_bench.js",
    "exit_simulation.js",
    "exit_words.js",
    "map_palette.js",
    "map_geometry.js",
    "map_paint.js",
    "map_view.js",
    "rule_view.js",
    "exit_text.js",
    "timed_view.js",
    "layer_work.js",
    "race.js",
    "beside_view.js",
    "tradeoff_figures.js",
    "tradeoff_view.js",
    "board_saving.js",
    "board.js",
)
BOARD_STYLES = ("stage.css", "tips.css", "plots.css")

# The words that explain themselves on the stage, by one of their names in the glossary.
STAGE_TERMS = (
    *("target", "drafter", "draft_model", "prompt_lookup", "early_exit", "draft_head", "lookup_first"),
    *("plain", "greedy", "k", "round"),
    *("draft", "verify", "judge", "rollback", "commit", "accepted", "rejected", "discarded", "cut"),
    *("correction", "bonus", "residual", "u", "alpha", "draft_acceptance_rate", "mean_tokens_per_round"),
    *("tokens_per_second", "identity", "walltime_speedup", "cache", "feature_layers", "cut_vocab_size", "distillation"),
    *("early_exit_decoding", "exit_confidence"),
)

BOARD_TERMS = (
    *("target", "draft", "plain", "early_exit", "early_exit_decoding", "exit_map", "exit_timed", "exit_confidence"),
)


@cache
def stage_script() -> str:
    """All of the stage as one classic script; it declares the one name `SpecViz`."""
    return f"{_joined(STAGE_SCRIPTS)}\nSpecViz.glossary = {glossary_json(STAGE_TERMS)};\n"


def glossary_json(names: Iterable[str]) -> str:
    """These words of the glossary as JSON that may stand in a script: {name: {term, meaning, synonyms}}."""
    found = {name: term_for(name) for name in names}
    words = {
        name: {"term": term.term, "meaning": term.meaning, "synonyms": term.synonyms}
        for name, term in found.items()
        if term is not None
    }
    return json.dumps(words).replace("<", "\\u003c")


@cache
def gradio_host_script() -> str:
    """What connects the stage with a Gradio component."""
    return _joined(["gradio_host.js"])


@cache
def address_script() -> str:
    """The page's address alone, for controls outside the stage."""
    return _joined(["namespace.js", "address.js"])


@cache
def file_host_script() -> str:
    """What connects the stage with a page that carries its own run."""
    return _joined(["file_host.js"])


@cache
def board_script() -> str:
    """All of the board as one classic script; it declares the one name `SpecViz`."""
    own = _joined(BOARD_SCRIPTS, BOARD_DIR)
    return f"{_joined(BOARD_BASE)}\nSpecViz.glossary = {glossary_json(BOARD_TERMS)};\n{own}\n"


@cache
def board_gradio_host_script() -> str:
    """What connects the board with a Gradio component."""
    return _joined(["board_gradio_host.js"], BOARD_DIR)


@cache
def board_file_host_script() -> str:
    """What connects the board with a page that carries its own runs."""
    return _joined(["board_file_host.js"], BOARD_DIR)


@cache
def board_css() -> str:
    """The board's style sheets; every rule is scoped to a stage or to the board."""
    return _joined(BOARD_STYLES) + _joined(["board.css"], BOARD_DIR)


@cache
def stage_css() -> str:
    """The stage's style sheets; every rule is scoped to the stage."""
    return _joined(STAGE_STYLES)


@cache
def file_page_css() -> str:
    """The style of the page around a stage without a server."""
    return _joined(["file_page.css"])


def _joined(names: Iterable[str], folder: Path = STAGE_DIR) -> str:
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
