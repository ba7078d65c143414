"""The tokens outside a cut vocabulary that a draft can say all the same: those that stand in its text.

Where the output head is the target's embedding, every token has a row there: what a prompt names can be said
again, at the price of one more row of the head for each token that was met.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

FIRST_CAPACITY = 128  # tokens


@dataclass(frozen=True, slots=True)
class TiedRows:
    """The output head's rows of any tokens, where it is the target's embedding.

    Attributes:
        embedding: [vocab, hidden], the target's.
        dtype, device: of the rows, as the head's input has them.
        factors: [hidden] that smooth the rows, where the head's input is smoothed.
    """

    embedding: Tensor
    dtype: torch.dtype
    device: torch.device
    factors: Tensor | None = None

    def of(self, token_ids: Sequence[int]) -> Tensor:
        """[tokens, hidden]."""
        rows = self.embedding[list(token_ids)].to(self.device, self.dtype)
        return rows if self.factors is None else rows * self.factors

    def empty(self, num_tokens: int) -> Tensor:
        return torch.empty(num_tokens, self.embedding.shape[1], dtype=self.dtype, device=self.device)


class ContextTokens:
    """Tokens outside a cut vocabulary, in the order in which they came first into a text; with their rows.

    It is part of a cache, and cut with it: what it holds depends on the text of the cache's entries only, and not on
    what was drafted and taken back.

    Args:
        known: the cut vocabulary, whose tokens need no row here.
        tied: None where the draft has a head of its own, which has no other rows: then nothing is ever held.
    """

    def __init__(self, known: Container[int], tied: TiedRows | None) -> None:
        self._known, self._tied = known, tied
        self._order: list[int] = []
        self._first_entries: list[int] = []  # ascending
        self._held: set[int] = set()
        if tied is not None:
            self._rows = tied.empty(0)
            self._ids = torch.empty(0, dtype=torch.int64, device=tied.device)

    def __len__(self) -> int:
        return len(self._order)

    @property
    def token_ids(self) -> list[int]:
        return list(self._order)

    def read(self, token_ids: Sequence[int] | Tensor, first_entry: int) -> None:
        """Note the tokens of the entries `first_entry`..., which come next in the cache.

        Tokens in a tensor were drafted with this very vocabulary (see `drafters/chain.py`): there is nothing to note.
        """
        if self._tied is None or isinstance(token_ids, Tensor):
            return
        self.truncate(first_entry)
        num_before = len(self)
        for entry, token_id in enumerate(token_ids, first_entry):
            if token_id not in self._known and token_id not in self._held:
                self._order.append(token_id)
                self._first_entries.append(entry)
                self._held.add(token_id)
        if len(self) > num_before:
            self._fetch_rows(num_before)

    def truncate(self, length: int) -> None:
        """Forget the tokens that came first in an entry from `length` on."""
        while self._first_entries and self._first_entries[-1] >= length:
            self._first_entries.pop()
            self._held.remove(self._order.pop())

    def rows_and_ids(self) -> tuple[Tensor, Tensor]:
        """[tokens, hidden] of the output head, and [tokens]; views that hold until the next `read`."""
        return self._rows[: len(self)], self._ids[: len(self)]

    def say(self, inputs: Tensor, first_entry: int, logits: Tensor) -> None:
        """Put the logits of these tokens in their places: row i has those that came up to entry first_entry + i.

        Row by row, so that a row is the same in a pass of its own.

        Args:
            inputs: [rows, hidden] of the output head.
            logits: [rows, vocab], written to.
        """
        num_said = 0
        for index, (row, out) in enumerate(zip(inputs, logits, strict=True)):
            while num_said < len(self) and self._first_entries[num_said] <= first_entry + index:
                num_said += 1
            if num_said:
                out.index_copy_(0, self._ids[:num_said], torch.mv(self._rows[:num_said], row))

    def _fetch_rows(self, start: int) -> None:
        """The rows of the tokens from `start` on."""
        end, capacity = len(self), len(self._ids)
        if end > capacity:
            roomy = max(end, 2 * capacity, FIRST_CAPACITY)
            rows, ids = self._tied.empty(roomy), self._ids.new_empty(roomy)
            rows[:start], ids[:start] = self._rows[:start], self._ids[:start]
            self._rows, self._ids = rows, ids
        self._rows[start:end] = self._tied.of(self._order[start:])
        self._ids[start:end] = torch.tensor(self._order[start:], device=self._ids.device)
