"""The length of a cache that is written in place: rolling back is a smaller number, what lies beyond is overwritten."""

from __future__ import annotations


class CutLength:
    """How many positions are held, for caches whose passes may be paused (see `layerwise.py`)."""

    def __init__(self) -> None:
        self._length = self._num_ahead = 0

    @property
    def length(self) -> int:
        return self._length

    @property
    def num_ahead(self) -> int:
        """Positions beyond `length` that only the first layers hold, of passes that were paused."""
        return self._num_ahead

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length, f"a cache of {self.length} positions is never cut to {length}"
        self._length, self._num_ahead = length, 0

    def advance(self, num_tokens: int) -> None:
        """The pass that has just written `num_tokens` positions is over."""
        self._length, self._num_ahead = self._length + num_tokens, 0

    def pause(self, num_tokens: int) -> None:
        """The pass that has just written `num_tokens` positions of the first layers goes on later."""
        self._num_ahead += num_tokens
