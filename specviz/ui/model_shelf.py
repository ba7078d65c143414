"""The models that this process has loaded: each target once, its drafts once a precision, shared by all runs."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from specviz.engine.draft_facts import DRAFT_KINDS
from specviz.errors import BadRequest
from specviz.presets import Pair

if TYPE_CHECKING:
    from specviz.engine.loader import ModelPair
    from specviz.ui.exit_request import ExitRequest
    from specviz.ui.live_run import Notify, RunLike
    from specviz.ui.run_request import RunRequest

MAX_LOADED_PAIRS = 2
MAX_DRAFT_PRECISIONS = 2  # of each pair: two runs can be compared without loading
MEMORY_SHARE_FOR_WEIGHTS = 0.7


class ModelShelf:
    """Loads pairs when they are first asked for, and keeps the latest ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[str, dict[str, ModelPair]] = {}  # pair -> draft precision -> models

    def open_run(self, request: RunRequest, notify: Notify) -> RunLike:
        """A run over the pair that is asked for; `notify` hears of what takes long."""
        needs_draft = request.settings.drafter in DRAFT_KINDS
        pair = self._pair(request.pair, request.draft_precision if needs_draft else None, notify)
        from specviz.runs import Run

        talk = request.conversation
        return Run(
            pair,
            request.prompt,
            request.settings,
            raw=request.raw,
            system=request.system or None,
            history=talk.history if talk else (),
            memory=talk.memory_for(_key(request.pair)) if talk else None,
            check=request.check,
            live_drafts=True,
        )

    def open_exit_part(self, request: ExitRequest, role: str, notify: Notify) -> RunLike:
        """One run of the Early exit tab, by its role; see `exit_request.SERIES`."""
        settings = request.settings_of(role)
        needs_draft = settings.drafter in DRAFT_KINDS
        pair = self._pair(request.pair, "auto" if needs_draft else None, notify)
        asked = {"raw": request.raw, "system": request.system or None}
        if role in ("map", "timed", "sweep", "early_exit"):
            from specviz.early_exit.exit_run import ExitRun

            kind = "map" if role == "map" else "timed"
            return ExitRun(
                pair,
                request.prompt,
                settings,
                request.exits_of(role),
                kind=kind,
                check=role in ("timed", "sweep"),
                **asked,
            )
        from specviz.runs import Run

        return Run(pair, request.prompt, settings, **asked)

    def _pair(self, wanted: Pair, precision: str | None, notify: Notify) -> ModelPair:
        """The models of a pair; with its drafts in any precision (None) where the run needs none."""
        name = _key(wanted)
        if name not in self._loaded:
            notify(f"Loading {wanted.title}. This happens once, at the first run")
        with self._lock:
            if name not in self._loaded:
                refuse_too_large(wanted)
                _make_room(self._loaded, MAX_LOADED_PAIRS)
                first = precision or "auto"
                self._loaded[name] = {first: _load(wanted, first, notify)}
            by_precision = self._loaded[name]
            latest = next(reversed(by_precision.values()))
            if precision is None:
                return latest
            if precision not in by_precision:
                notify("Loading the draft's weights")
                other = latest.with_draft_precision(precision)
                _make_room(by_precision, MAX_DRAFT_PRECISIONS)
                by_precision[precision] = other
            return by_precision[precision]


def _make_room(shelf: dict[str, Any], size: int) -> None:
    while len(shelf) >= size:
        shelf.pop(next(iter(shelf)))


def _key(pair: Pair) -> str:
    return f"{pair.name}|{pair.target}|{pair.draft}"


def _load(pair: Pair, precision: str, notify: Notify) -> ModelPair:
    from specviz.engine.loader import load_pair

    if pair.is_embedded:
        return load_pair(draft_precision=precision)
    return load_pair(
        pair.target,
        pair.draft,
        revision=pair.target_revision,
        draft_revision=pair.draft_revision,
        draft_precision=precision,
        notify=notify,
    )


def refuse_too_large(pair: Pair) -> None:
    """Raises BadRequest when the weights alone would fill this machine's memory."""
    available = memory_bytes()
    if pair.weight_bytes() > MEMORY_SHARE_FOR_WEIGHTS * available:
        raise BadRequest(
            f"{pair.title} needs about {pair.weight_bytes() / 1e9:.1f} GB for its weights and this machine has "
            f"{available / 1e9:.1f} GB: choose a smaller pair."
        )


def memory_bytes() -> int:
    """The physical memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
