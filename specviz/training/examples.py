"""From shards to batches: sequences of about one length side by side, padded at the end."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specviz.training.corpus import Corpus
from specviz.training.states import StateStore

POOL = 64  # batches that are sorted by length together


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences side by side.

    Attributes:
        ids: [sequences, tokens].
        features: [sequences, tokens, layers, hidden] float32, of each token; the last layer is the target's last.
        log_sums: [sequences, tokens], of the logits after each token.
        weights: [sequences, tokens], how much the distribution after a token counts; 0 where it is not known.
    """

    ids: Tensor
    features: Tensor
    log_sums: Tensor
    weights: Tensor

    @property
    def last_states(self) -> Tensor:
        return self.features[:, :, -1]


class Examples:
    """The sequences of a corpus that are for training, or those that are held out; only answers count."""

    def __init__(
        self,
        corpus: Corpus,
        store: StateStore,
        *,
        held_out: bool | None,
        num_tokens: int | None = None,
        after: int = 0,
    ) -> None:
        """
        Args:
            held_out: None = both.
            num_tokens: take the first shards that hold so many; None = all.
            after: but not those at the beginning that hold so many.
        """
        self._shards = {shard.number: shard for shard in corpus.shards(num_tokens, after)}
        self._states = {number: store.read(number) for number, shard in self._shards.items() if len(shard)}
        self.places = [
            (number, index)
            for number, shard in self._shards.items()
            for index in range(len(shard))
            if held_out is None or shard.is_held_out(index) == held_out
        ]
        self.lengths = np.array([self._length(*place) for place in self.places], np.int64)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def num_tokens(self) -> int:
        return int(self.lengths.sum())

    @property
    def fingerprint(self) -> int:
        """Of the ids of all sequences."""
        digest = 0
        for number, index in self.places:
            digest = zlib.crc32(self._shards[number].sequence(index).astype("<u4").tobytes(), digest)
        return digest

    def token_counts(self, vocab_size: int) -> np.ndarray:
        """[vocab] how often each token occurs in answers."""
        counts = np.zeros(vocab_size, np.int64)
        for number, index in self.places:
            shard = self._shards[number]
            np.add.at(counts, shard.sequence(index)[shard.answer_starts[index] :], 1)
        return counts

    def coverage(self, vocab_ids: np.ndarray, vocab_size: int, *, says_context: bool) -> float:
        """Share of the answers' tokens that are among `vocab_ids` or, if so asked, stand earlier in their sequence."""
        in_cut = np.zeros(vocab_size, bool)
        in_cut[vocab_ids] = True
        covered = total = 0
        for number, index in self.places:
            ids, start = self._shards[number].sequence(index), self._shards[number].answer_starts[index]
            sayable = in_cut[ids]
            if says_context:
                again = np.ones(len(ids), bool)
                again[np.unique(ids, return_index=True)[1]] = False
                sayable |= again
            covered += int(sayable[start:].sum())
            total += len(ids) - int(start)
        return covered / max(1, total)

    def order(self, epoch: int, seed: int, tokens_per_batch: int) -> list[list[int]]:
        """Which sequences make each batch of an epoch; a function of the arguments."""
        if not self.places:
            return []
        rng = np.random.Generator(np.random.Philox(key=[seed, epoch]))
        shuffled = rng.permutation(len(self.places))
        pool = max(1, POOL * tokens_per_batch // int(self.lengths.mean()))
        batches: list[list[int]] = []
        for start in range(0, len(shuffled), pool):
            batch: list[int] = []
            for index in sorted(shuffled[start : start + pool], key=lambda i: self.lengths[i]):
                if batch and (len(batch) + 1) * self.lengths[index] > tokens_per_batch:
                    batches.append(batch)
                    batch = []
                batch.append(int(index))
            batches.append(batch)
        return [batches[i] for i in rng.permutation(len(batches))]

    def batch(self, indices: list[int]) -> Batch:
        longest = int(self.lengths[indices].max())
        parts = [self._padded(*self.places[index], longest) for index in indices]
        return Batch(*(torch.stack(column) for column in zip(*parts, strict=True)))

    def batches(self, order: list[list[int]]) -> Iterator[Batch]:
        return map(self.batch, order)

    def _length(self, number: int, index: int) -> int:
        starts = self._shards[number].starts
        return int(starts[index + 1] - starts[index])

    def _padded(self, number: int, index: int, longest: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        shard, states = self._shards[number], self._states[number]
        start, end = shard.starts[index], shard.starts[index + 1]
        pad = longest - (end - start)
        log_sums = torch.from_numpy(states.log_sums[start:end].copy())
        weights = torch.zeros(end - start)
        weights[max(0, shard.answer_starts[index] - 1) :] = 1
        weights[log_sums.isnan()] = 0
        return (
            torch.nn.functional.pad(torch.from_numpy(shard.ids[start:end]), (0, pad)),
            torch.nn.functional.pad(
                torch.from_numpy(states.features[start:end].astype(np.float32)), (0, 0, 0, 0, 0, pad)
            ),
            torch.nn.functional.pad(log_sums.nan_to_num(), (0, pad)),
            torch.nn.functional.pad(weights, (0, pad)),
        )
