"""The drafts of a pair that are loaded when a run first asks for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from specviz.engine.draft_head import DraftHeadModel
from specviz.engine.language_model import LanguageModel

Draft = LanguageModel | DraftHeadModel


class LazyDrafts:
    """One draft a kind of drafter, loaded once whatever the number of runs that ask at a time.

    Args:
        openers: kind -> what loads the draft of that kind, or finds that there is none; what it raises is raised
            to everyone who asks.
    """

    def __init__(self, openers: Mapping[str, Callable[[], Draft | None]] | None = None) -> None:
        self._openers = dict(openers or {})
        self._opened: dict[str, Draft | None] = {}
        self._lock = threading.Lock()

    def get(self, kind: str) -> Draft | None:
        """The draft that drafters of this kind run; None if there is none."""
        if kind not in self._openers:
            return None
        with self._lock:
            if kind not in self._opened:
                self._opened[kind] = self._openers[kind]()
            return self._opened[kind]
