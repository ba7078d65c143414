"""Step (a) of a distillation: the target fills a corpus, on all cores, and can be broken off at any time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from queue import Queue

import numpy as np
import torch

from specviz.engine.lean_model import LeanModel
from specviz.errors import RunFailed
from specviz.training.corpus import SEQUENCES_PER_SHARD, Corpus, Shard
from specviz.training.states import States, StateStore
from specviz.training.writing import ChatFrame, Lengths, Written, write

DEFAULT_LENGTHS = Lengths()


def generate(
    model: LeanModel,
    frame: ChatFrame,
    corpus: Corpus,
    store: StateStore,
    *,
    num_tokens: int,
    seed: int,
    workers: int,
    rows: int = 32,
    lengths: Lengths = DEFAULT_LENGTHS,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write shards until the corpus holds `num_tokens`; those that are there are kept as they are.

    Shards are saved in the order of their numbers, and none beyond those that are needed, so that it depends on the
    seed alone which there are in the end.

    Args:
        workers: threads, each with `rows` sequences at a time.
        report: told how many tokens there are, and of how many, after every sequence.

    Raises:
        RunFailed: the target writes nothing worth keeping.
    """
    there = set(corpus.numbers())
    done = saved = corpus.num_tokens()
    report(min(done, num_tokens), num_tokens)
    if saved >= num_tokens:
        return
    finished: Queue[Written | BaseException] = Queue()
    numbers = _Numbers(there)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)

    def work() -> None:
        try:
            torch.set_num_threads(1)
            written = write(
                model,
                frame,
                numbers,
                seed=seed,
                rows=rows,
                lengths=lengths,
                feature_layers=store.layers,
                should_stop=lambda: numbers.is_stopped,
            )
            for sequence in written:
                finished.put(sequence)
        except BaseException as error:  # raised again where it is waited for
            finished.put(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    open_shards: dict[int, list[Written]] = {}
    missing = (number for number in itertools.count() if number not in there)
    number = next(missing)
    try:
        while saved < num_tokens:
            sequence = finished.get()
            if isinstance(sequence, BaseException):
                raise sequence
            open_shards.setdefault(sequence.index // SEQUENCES_PER_SHARD, []).append(sequence)
            done += len(sequence.ids)
            if done >= num_tokens:
                numbers.finish()
            report(min(done, num_tokens), num_tokens)
            while saved < num_tokens and _is_complete(open_shards.get(number, [])):
                saved += _save(number, open_shards.pop(number), corpus, store, model.vocab_size)
                number = next(missing)
    finally:
        numbers.stop()
        for thread in threads:
            thread.join()
        torch.set_num_threads(threads_before)


class _Numbers(Iterator[int]):
    """The numbers of the sequences that are to be written, given out to all workers one by one."""

    def __init__(self, shards_there: set[int]) -> None:
        self._there, self._next, self._end = shards_there, 0, None
        self._lock = threading.Lock()
        self.is_stopped = False

    def __next__(self) -> int:
        with self._lock:
            while self._next % SEQUENCES_PER_SHARD == 0 and self._next // SEQUENCES_PER_SHARD in self._there:
                self._next += SEQUENCES_PER_SHARD
            if self.is_stopped or (self._end is not None and self._next >= self._end):
                raise StopIteration
            self._next += 1
            return self._next - 1

    def finish(self) -> None:
        """Give out no number beyond the shards that were begun."""
        with self._lock:
            if self._end is None:
                self._end = -(-self._next // SEQUENCES_PER_SHARD) * SEQUENCES_PER_SHARD

    def stop(self) -> None:
        """Leave what was begun."""
        self.is_stopped = True


def _is_complete(sequences: list[Written]) -> bool:
    return sum(sequence.is_last for sequence in sequences) == SEQUENCES_PER_SHARD


def _save(number: int, sequences: list[Written], corpus: Corpus, store: StateStore, vocab_size: int) -> int:
    """Returns how many tokens there are in the shard."""
    kept = [sequence for sequence in sorted(sequences, key=lambda written: written.index) if len(sequence.ids)]
    if not kept:
        raise RunFailed(
            f"The target has written {len(sequences)} texts in a row that only repeat themselves: choose another target."
        )
    shard = Shard.of(number, ((sequence.ids, sequence.answer_start) for sequence in kept))
    states = States(
        np.concatenate([sequence.features for sequence in kept]),
        np.concatenate([sequence.log_sums for sequence in kept]),
    )
    store.write(number, states)
    corpus.write(shard, vocab_size)
    return len(shard.ids)
