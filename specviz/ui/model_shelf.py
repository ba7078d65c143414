"""The models that this process has loaded: each pair once, shared by all runs."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from specviz.errors import BadRequest
from specviz.presets import Pair

if TYPE_CHECKING:
    from specviz.engine.loader import ModelPair
    from specviz.ui.live_run import Notify, RunLike
    from specviz.ui.run_request import RunRequest

MAX_LOADED_PAIRS = 2
MEMORY_SHARE_FOR_WEIGHTS = 0.7


class ModelShelf:
    """Loads pairs when they are first asked for, and keeps the latest ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: dict[str, ModelPair] = {}

    def open_run(self, request: RunRequest, notify: Notify) -> RunLike:
        """A run over the pair that is asked for; `notify` hears of what takes long."""
        pair = self._pair(request.pair, notify)
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

    def _pair(self, wanted: Pair, notify: Notify) -> ModelPair:
        name = _key(wanted)
        if name not in self._loaded:
            notify(f"Loading {wanted.title}. This happens once, at the first run")
        with self._lock:
            if name not in self._loaded:
                refuse_too_large(wanted)
                self._make_room()
                self._loaded[name] = _load(wanted, notify)
            return self._loaded[name]

    def _make_room(self) -> None:
        while len(self._loaded) >= MAX_LOADED_PAIRS:
            self._loaded.pop(next(iter(self._loaded)))


def _key(pair: Pair) -> str:
    return f"{pair.name}|{pair.target}|{pair.draft}"


def _load(pair: Pair, notify: Notify) -> ModelPair:
    from specviz.engine.loader import load_pair

    if pair.is_embedded:
        return load_pair()
    return load_pair(
        pair.target, pair.draft, revision=pair.target_revision, draft_revision=pair.draft_revision, notify=notify
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
