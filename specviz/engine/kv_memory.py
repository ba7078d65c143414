"""The KV caches that a conversation keeps between its turns.

A turn's prompt begins with the text of the turns before it. Where its token ids begin with those that a
kept cache holds, the cache is cut to that common beginning and used again; the rest is fed as usual.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from specviz.engine.draft_head import DraftHeadModel
from specviz.engine.language_model import KVCache, LanguageModel

Keeper = LanguageModel | DraftHeadModel


class KVMemory:
    """Kept caches, at most one a model, as long as somebody else keeps the model. A run takes them out and puts them
    back when it has finished, so that two runs never hold the same cache: the second finds nothing, and starts anew."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Keeper, tuple[list[int], KVCache]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def reusable(self, model: Keeper, prompt_ids: Sequence[int]) -> int:
        """How many positions `take` would give for this prompt."""
        with self._lock:
            kept = self._kept.get(model)
        return 0 if kept is None else _common_length(model, kept[0], prompt_ids)

    def take(self, model: Keeper, prompt_ids: Sequence[int]) -> KVCache:
        """The model's kept cache, cut to what it has in common with the prompt (less its last token), or an empty one."""
        with self._lock:
            kept = self._kept.pop(model, None)
        if kept is None:
            return model.new_cache()
        ids, cache = kept
        cache.truncate(_common_length(model, ids, prompt_ids))
        return cache

    def keep(self, model: Keeper, token_ids: Sequence[int], cache: KVCache) -> None:
        """Put a cache back whose positions are the first `cache.length` of `token_ids`."""
        with self._lock:
            self._kept[model] = (list(token_ids[: cache.length + reads_ahead(model)]), cache)


def reads_ahead(model: Keeper) -> int:
    """How many tokens beyond its own a position of the model's cache depends on."""
    return getattr(model, "reads_ahead", 0)


def _common_length(model: Keeper, kept_ids: Sequence[int], prompt_ids: Sequence[int]) -> int:
    """Positions to use again: the prompt's last token is always fed, to be pending."""
    longest = min(len(kept_ids), len(prompt_ids) - 1)
    common = next((i for i in range(longest) if kept_ids[i] != prompt_ids[i]), longest)
    return max(common - reads_ahead(model), 0)
