"""A watch on an engine from outside: when each block of new tokens came."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from specviz.lab.engines import Generation

if TYPE_CHECKING:
    from torch import Tensor


class BlockClock:
    """Runs from its making on; told of each block of new tokens as it comes.

    Prefill cannot be told from the first round here, so the time from the first block to the last is that
    of the tokens after the first block.
    """

    def __init__(self) -> None:
        self._start = perf_counter()
        self._times: list[float] = []
        self._sizes: list[int] = []

    def block(self, num_tokens: int) -> None:
        self._times.append(perf_counter())
        self._sizes.append(num_tokens)

    def generation(self, token_ids: list[int], *, a_block_is_a_round: bool) -> Generation:
        return Generation(
            token_ids=token_ids,
            timed_tokens=sum(self._sizes[1:]),
            seconds=self._times[-1] - self._times[0] if self._times else 0.0,
            first_token_seconds=(self._times[0] if self._times else perf_counter()) - self._start,
            rounds=len(self._sizes) if a_block_is_a_round else None,
        )


class ClockStreamer:
    """A streamer for transformers' `generate`, which first puts the prompt, then a block a target pass."""

    def __init__(self) -> None:
        self._has_seen_prompt = False
        self.clock = BlockClock()

    def put(self, token_ids: Tensor) -> None:
        if self._has_seen_prompt:
            self.clock.block(token_ids.numel())
        self._has_seen_prompt = True

    def end(self) -> None:
        """Nothing is kept back."""
