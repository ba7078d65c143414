"""The text that a target wrote, on disk: shards of token ids, and beside each what a draft learns from.

A shard holds the sequences of a fixed range of numbers, so that a seed gives the same shards on any
machine and a broken-off generation goes on where it was. Ids are small and worth keeping; states are
large, and can be computed again from the ids (`states.py`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specviz.cache import explained_os_errors
from specviz.errors import BadRequest

ABOUT_FILE = "about.json"
SEQUENCES_PER_SHARD = 256
HELD_OUT_EVERY = 40  # of the prompts, by a hash of their tokens: equal prompts fall on the same side
LEAST_QUOTED = 32  # tokens of an answer that another prompt repeats on purpose
CONTEXT_WITHOUT_CHAT = 8  # tokens of a text that stand for its prompt where nothing but a first token comes before it


@dataclass(frozen=True, slots=True)
class Shard:
    """The kept sequences of one range of numbers, end to end.

    Attributes:
        ids: [tokens] int64.
        starts: [sequences + 1] int64; sequence i is ids[starts[i]:starts[i + 1]].
        answer_starts: [sequences] int64, index of the answer's first token within its sequence.
    """

    number: int
    ids: np.ndarray
    starts: np.ndarray
    answer_starts: np.ndarray

    @classmethod
    def of(cls, number: int, sequences: Iterable[tuple[np.ndarray, int]]) -> Shard:
        """Of (ids, answer_start) pairs."""
        pairs = list(sequences)
        starts = np.cumsum([0, *(len(ids) for ids, _ in pairs)])
        ids = np.concatenate([ids for ids, _ in pairs]) if pairs else np.zeros(0, np.int64)
        return cls(number, ids, starts, np.array([start for _, start in pairs], np.int64))

    def __len__(self) -> int:
        return len(self.answer_starts)

    def sequence(self, index: int) -> np.ndarray:
        return self.ids[self.starts[index] : self.starts[index + 1]]

    def is_held_out(self, index: int) -> bool:
        """Whether a sequence is for evaluation only, decided by its prompt; one about the answer before it goes where
        that answer goes, so that no text is on both sides."""
        decides = index - 1 if index and self._quotes_the_one_before(index) else index
        prompt_length = int(self.answer_starts[decides])
        if prompt_length == 1:
            prompt_length += CONTEXT_WITHOUT_CHAT
        prompt = self.sequence(decides)[:prompt_length]
        return zlib.crc32(prompt.astype("<u4").tobytes()) % HELD_OUT_EVERY == 0

    def _quotes_the_one_before(self, index: int) -> bool:
        prompt = self.sequence(index)[: self.answer_starts[index]]
        text = self.sequence(index - 1)[self.answer_starts[index - 1] : -1]  # its last token may be an end token
        if not LEAST_QUOTED <= len(text) < len(prompt):
            return False
        places = np.flatnonzero(prompt[: len(prompt) - len(text) + 1] == text[0])
        return any(np.array_equal(prompt[place : place + len(text)], text) for place in places)


class Corpus:
    """A folder of shards, written by one target with one seed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def claim(self, facts: dict[str, Any]) -> None:
        """Say who writes here: in a new folder the facts are noted, in another they have to be the same.

        Raises:
            BadRequest: the folder holds the text of another target, or of other settings.
        """
        if (self.folder / ABOUT_FILE).exists() or self.numbers():
            self.require(facts)
        else:
            write_facts(self.folder, facts)

    def require(self, facts: dict[str, Any]) -> None:
        """
        Raises:
            BadRequest: the text in the folder is not of these facts.
        """
        held = self.facts()
        if other := [name for name in facts if held.get(name) != facts[name]]:
            name = other[0]
            raise BadRequest(
                f"{self.folder} holds text whose {name} is {held.get(name)!r}, and now it is {facts[name]!r}: "
                "name another folder with --corpus."
            )

    def facts(self) -> dict[str, Any]:
        """Who has written here.

        Raises:
            BadRequest: the folder does not tell.
        """
        return read_facts(self.folder)

    def numbers(self) -> list[int]:
        """Of the shards that are there."""
        stems = (path.stem.removeprefix("ids-") for path in self.folder.glob("ids-*.npz"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def path(self, number: int) -> Path:
        return self.folder / f"ids-{number:05d}.npz"

    def write(self, shard: Shard, num_ids: int) -> None:
        """Whole, or not at all.

        Args:
            num_ids: size of the vocabulary, which decides how wide an id is on disk.
        """
        dtype = np.uint16 if num_ids <= 1 << 16 else np.uint32
        with explained_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = self.folder / f".partial-{shard.number:05d}.npz"
            np.savez_compressed(
                partial,
                ids=shard.ids.astype(dtype),
                lengths=np.diff(shard.starts).astype(np.uint16),
                answer_starts=shard.answer_starts.astype(np.uint16),
            )
            partial.replace(self.path(shard.number))

    def read(self, number: int) -> Shard:
        """
        Raises:
            BadRequest: not a shard, or a damaged one.
        """
        path = self.path(number)
        try:
            with np.load(path, allow_pickle=False) as held:
                starts = np.cumsum([0, *held["lengths"].astype(np.int64)])
                shard = Shard(number, held["ids"].astype(np.int64), starts, held["answer_starts"].astype(np.int64))
        except Exception as error:  # what a damaged archive raises is not documented
            raise BadRequest(f"{path} cannot be read as a shard of token ids ({error}): delete it.") from error
        lengths = np.diff(starts)
        if (
            starts[-1] != len(shard.ids)
            or lengths.shape != shard.answer_starts.shape
            or (shard.answer_starts >= lengths).any()
        ):
            raise BadRequest(f"{path} is not consistent: delete it, it is written again.")
        return shard

    def shards(self, num_tokens: int | None = None, after: int = 0) -> Iterator[Shard]:
        """All of them; or the first ones, as many as hold `num_tokens`; without the first ones that hold `after`."""
        held = 0
        for number in self.numbers():
            if num_tokens is not None and held >= num_tokens:
                return
            shard = self.read(number)
            if held >= after:
                yield shard
            held += len(shard.ids)

    def num_tokens(self) -> int:
        return sum(len(shard.ids) for shard in self.shards())


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Note in a folder whose it is."""
    with explained_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".partial-{ABOUT_FILE}"
        partial.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        partial.replace(folder / ABOUT_FILE)


def claim_states(folder: Path, facts: dict[str, Any]) -> None:
    """Note in a new folder whose text its states are of; in another it has to be the same.

    Raises:
        BadRequest: the folder holds states of another text.
    """
    if not (folder / ABOUT_FILE).exists():
        write_facts(folder, facts)
    elif read_facts(folder) != facts:
        raise BadRequest(
            f"{folder} holds the states of another text (another target, seed or length): "
            "delete it, or name another folder with --work."
        )


def read_facts(folder: Path) -> dict[str, Any]:
    """What `write_facts` has noted.

    Raises:
        BadRequest: it cannot be read.
    """
    path = folder / ABOUT_FILE
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRequest(f"{path} cannot be read ({error}): restore it, or name another folder.") from None
    if not isinstance(held, dict):
        raise BadRequest(f"{path} holds no JSON object: restore it, or name another folder.")
    return held
