"""What a visitor asks of the Early exit tab, checked: a prompt, models, exit heads, the exit rule, and which runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from specviz.config import RunSettings
from specviz.early_exit.exit_settings import NEVER, ExitSettings
from specviz.engine.draft_facts import DRAFT_KINDS
from specviz.errors import BadRequest
from specviz.presets import Pair, find_pair
from specviz.ui.run_request import DEFAULT_K, MAX_NEW_TOKENS, MAX_PROMPT_CHARS, MAX_SEED, whole_number

# What each series runs, one after the other, all on one prompt.
SERIES = {
    "pair": ("map", "timed"),
    "real": ("timed",),
    "sweep": ("sweep",) * 4,
    "beside": ("plain", "early_exit", "self_speculation", "drafted"),
}
# The thresholds of a sweep, by measure: from many early exits to few.
SWEEP_THRESHOLDS = {
    "top1": (0.3, 0.5, 0.7, 0.9),
    "gap": (0.2, 0.4, 0.6, 0.8),
    "entropy": (0.5, 0.65, 0.8, 0.95),
    "saturation": (0.8, 0.9, 0.95, 0.99),
}
HEADS_WORDS = {"auto": "Trained translators, where there are some", "plain": "Plain: final norm and output head"}
MAX_LAYER = 1000
SELF_DRAFT_TOKENS = 2  # an early layer says what the last one says a third of the time: longer drafts are for the bin
DEFAULT_PROMPT = "Explain in three sentences why the sky is blue."
DEFAULT_NEW_TOKENS = 64


@dataclass(frozen=True, slots=True)
class ExitRequest:
    """A series of runs on one prompt.

    Attributes:
        series: one of `SERIES`.
        settings: of every run; each run's drafter is its own.
        exits: the exit rule of the timed run; the map run reads every layer whatever it says.
        self_layer: how many layers draft in self-speculation; None = a third of them.
    """

    series: str
    pair: Pair
    prompt: str
    settings: RunSettings
    exits: ExitSettings
    raw: bool = False
    system: str = ""
    self_layer: int | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """The runs of the series, in order; without a drafter of its own a pair has one run less."""
        roles = SERIES[self.series]
        return roles if self.drafter else tuple(role for role in roles if role != "drafted")

    @property
    def drafter(self) -> str | None:
        """The best drafter beside the target's own layers."""
        kinds = [kind for kind in self.pair.drafters if kind != "early_exit"]
        return next((kind for kind in kinds if kind in DRAFT_KINDS), kinds[0] if kinds else None)

    def at(self, number: int) -> ExitRequest:
        """The request as the run of that number (from 0) is made: in a sweep each has a threshold of its own."""
        if self.series != "sweep":
            return self
        return replace(self, exits=replace(self.exits, threshold=SWEEP_THRESHOLDS[self.exits.measure][number]))

    def settings_of(self, role: str) -> RunSettings:
        """The settings of one run of the series."""
        if role == "self_speculation":
            return replace(
                self.settings,
                drafter="early_exit",
                exit_layer=self.self_layer,
                exit_heads=self.exits.heads,
                num_draft_tokens=SELF_DRAFT_TOKENS,
            )
        if role == "drafted":
            best = self.pair.best_settings
            k = best.get("num_draft_tokens", DEFAULT_K) if self.drafter == best["drafter"] else DEFAULT_K
            return replace(self.settings, drafter=self.drafter, num_draft_tokens=k)
        return replace(self.settings, drafter="none")

    def exits_of(self, role: str) -> ExitSettings:
        """The exit rule of one run; a map shows every exit layer, also those below the minimum."""
        return replace(self.exits, min_layer=None) if role == "map" else self.exits


def exit_request_from(values: Any) -> ExitRequest:
    """The series that somebody asks for; raises BadRequest with the value, the choices and the remedy.

    Args:
        values: a dict of series, pair, prompt, system, raw, heads, measure, threshold (null never exits), min_layer,
            self_layer, temperature, top_k, top_p, max_new_tokens and seed; anybody can send anything.
    """
    if not isinstance(values, dict):
        raise BadRequest("This is no request for an early-exit run: press Run.")
    series = values.get("series")
    if not isinstance(series, str) or series not in SERIES:
        raise BadRequest(f"The series is {series!r}: choose one of {', '.join(SERIES)}.")
    pair = values.get("pair")
    if not isinstance(pair, str):
        raise BadRequest(f"The models are {pair!r}: choose them by their name.")
    return ExitRequest(
        series,
        find_pair(pair),
        _text("prompt", values.get("prompt"), needed=True),
        _settings_from(values),
        _exits_from(values),
        raw=bool(values.get("raw")),
        system=_text("system message", values.get("system") or "").strip(),
        self_layer=_layer("The layer for self-speculation", values.get("self_layer")),
    )


def _settings_from(values: dict[str, Any]) -> RunSettings:
    return RunSettings(
        drafter="none",
        temperature=values.get("temperature", 0.0),
        top_k=whole_number("top-k", values.get("top_k", 0), 0, 10_000),
        top_p=values.get("top_p", 1.0),
        max_new_tokens=whole_number("New tokens", values.get("max_new_tokens", DEFAULT_NEW_TOKENS), 1, MAX_NEW_TOKENS),
        seed=whole_number("The seed", values.get("seed", 0), 0, MAX_SEED),
    )


def _exits_from(values: dict[str, Any]) -> ExitSettings:
    threshold = values.get("threshold")
    return ExitSettings(
        measure=values.get("measure", "top1"),
        threshold=NEVER if threshold is None else threshold,
        min_layer=_layer("The minimum layer", values.get("min_layer")),
        heads=values.get("heads", "auto"),
    )


def _layer(name: str, value: object) -> int | None:
    return None if value is None else whole_number(name, value, 1, MAX_LAYER)


def _text(what: str, text: object, needed: bool = False) -> str:
    if needed and (not isinstance(text, str) or not text.strip()):
        raise BadRequest(f"The {what} is empty: write something for the model to answer.")
    if not isinstance(text, str) or len(text) > MAX_PROMPT_CHARS:
        raise BadRequest(
            f"The {what} has {len(str(text))} characters: at most {MAX_PROMPT_CHARS} fit here, so shorten it."
        )
    return text
