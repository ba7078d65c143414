"""The drafts and exit heads of a pair that are loaded when a run first asks for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from specviz.engine.draft_head import DraftHeadModel
from specviz.engine.language_model import LanguageModel

if TYPE_CHECKING:
    from specviz.early_exit.exit_heads import ExitHeads

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


class LazyExitHeads:
    """The exit heads of one target, opened once a kind."""

    def __init__(self) -> None:
        self._opened: dict[str, ExitHeads] = {}
        self._lock = threading.Lock()

    def get(self, target: LanguageModel, kind: str) -> ExitHeads:
        """The heads of a kind (one of `config.EXIT_HEADS`) for the target, which is the same at every call.

        Raises:
            BadRequest: there are none, or they cannot be loaded.
        """
        from specviz.early_exit.exit_heads import open_exit_heads

        with self._lock:
            if kind not in self._opened:
                self._opened[kind] = open_exit_heads(target, kind)
            return self._opened[kind]
