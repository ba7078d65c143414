"""Positions of answers, for one purpose, in any order."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specviz.training.answer_states import AnswerStateStore, Role, roles
from specviz.training.corpus import Shard

MOST_SEQUENCES = 1 << 16  # of a shard


@dataclass(frozen=True, slots=True)
class Positions:
    """
    Attributes:
        states: [layers - 1, positions, hidden] float32, over their root mean squares.
        head_inputs: [positions, hidden], the last state after the final norm.
        log_sums: [positions], of all the target's logits.
        choices: [positions], the target's most probable next tokens.
    """

    states: Tensor
    head_inputs: Tensor
    log_sums: Tensor
    choices: Tensor


class AnswerExamples:
    """All positions of a role.

    Attributes:
        sequences: [positions] which sequence each belongs to (a number of its own for each).
        choices, next_ids: [positions], see `AnswerStates`.
        num_sequences: how many answers there are.
    """

    def __init__(self, store: AnswerStateStore, shards: list[Shard], role: Role) -> None:
        self._parts, places, columns = [], [], []
        digest, self.num_sequences = 0, 0
        for shard in shards:
            wanted = [index for index, held in roles(shard, store.one_in).items() if held == role]
            if not wanted:
                continue
            part = store.read(shard.number)
            at = np.flatnonzero(np.isin(part.sequences, wanted))
            places.append(np.stack([np.full(len(at), len(self._parts)), at], 1))
            columns.append(
                (
                    part.choices[at],
                    part.next_ids[at],
                    part.sequences[at] + shard.number * MOST_SEQUENCES,
                    part.log_sums[at],
                )
            )
            self._parts.append(part.states)
            self.num_sequences += len(wanted)
            for index in wanted:
                digest = zlib.crc32(shard.sequence(index).astype("<u4").tobytes(), digest)
        self.fingerprint = digest
        self._places = np.concatenate(places) if places else np.zeros((0, 2), np.int64)
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)] or [np.zeros(0, np.int64)] * 4
        self.choices, self.next_ids, self.sequences, self._log_sums = joined

    def __len__(self) -> int:
        return len(self._places)

    def gather(self, indices: np.ndarray) -> Positions:
        """The positions of these indices, in their order."""
        first = self._parts[0]
        held = np.empty((len(indices), *first.shape[1:]), np.float16)
        for row, (part, at) in enumerate(self._places[indices]):
            held[row] = self._parts[part][at]
        states = torch.from_numpy(held).float()
        return Positions(
            states[:, :-1].transpose(0, 1).contiguous(),
            states[:, -1].contiguous(),
            torch.from_numpy(self._log_sums[indices]),
            torch.from_numpy(self.choices[indices]),
        )
