"""What translators learn from: the target's residual states after every layer, at the tokens of its own answers.

All layers are large (35 kB a token for the embedded target), so that only some of the sequences are read, and only
their answers are kept. A state is kept over its root mean square: what comes after it is a norm, which takes no
notice of the size, and float16 has room for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
import torch

from specviz.cache import explained_os_errors
from specviz.engine.lean_model import LeanModel
from specviz.training.corpus import Shard, claim_states

TUNE_EVERY = 12  # of the sequences read for training: kept apart, to choose thresholds and layers on

Role = Literal["train", "tune", "held_out"]


@dataclass(frozen=True, slots=True)
class AnswerStates:
    """The read answers of a shard, end to end.

    Attributes:
        states: [positions, layers, hidden] float16, after layers 1.. over their root mean squares; the last layer's
            has been through the final norm and is what the output head is given.
        log_sums: [positions] float32, log of the sum of the exponentials of all logits.
        choices: [positions] int64, the target's most probable next token.
        next_ids: [positions] int64, the token that follows in the text.
        sequences: [positions] int64, index of the sequence within its shard.
    """

    states: np.ndarray
    log_sums: np.ndarray
    choices: np.ndarray
    next_ids: np.ndarray
    sequences: np.ndarray


def roles(shard: Shard, one_in: int) -> dict[int, Role]:
    """Which sequences of a shard are read, and what for: all that are held out, and of the others one in so many."""
    others = [index for index in range(len(shard)) if not shard.is_held_out(index)]
    read = others[::one_in]
    named: dict[int, Role] = dict.fromkeys(read, "train")
    named |= dict.fromkeys(read[TUNE_EVERY - 1 :: TUNE_EVERY], "tune")
    named |= {index: "held_out" for index in range(len(shard)) if shard.is_held_out(index)}
    return dict(sorted(named.items()))


class AnswerStateStore:
    """A folder of answer states, by the number of the shard."""

    def __init__(self, folder: Path, one_in: int) -> None:
        """
        Args:
            one_in: of the sequences for training, how many there are to one that is read.
        """
        self._folder, self.one_in = folder, one_in

    def claim(self, facts: dict[str, Any]) -> None:
        """Say whose text the states are of: noted in a new folder, and in another it has to be the same.

        Raises:
            BadRequest: the folder holds states of another text.
        """
        claim_states(self._folder, facts)

    def paths(self, number: int) -> tuple[Path, Path]:
        name = f"{number:05d}-one-in-{self.one_in}"
        return self._folder / f"states-{name}.npy", self._folder / f"tokens-{name}.npz"

    def has(self, shard: Shard) -> bool:
        try:
            held = self.read(shard.number)
        except (OSError, ValueError, EOFError, KeyError, zlib.error, BadZipFile):
            return False
        wanted = sum(_num_positions(shard, index) for index in roles(shard, self.one_in))
        return wanted == len(held.states) == len(held.log_sums) == len(held.sequences)

    def read(self, number: int) -> AnswerStates:
        states_file, tokens_file = self.paths(number)
        with np.load(tokens_file, allow_pickle=False) as held:
            named = {name: held[name] for name in ("log_sums", "choices", "next_ids", "sequences")}
        return AnswerStates(np.load(states_file, mmap_mode="r"), **named)

    def compute(self, model: LeanModel, shards: Iterable[Shard], report: Callable[[int, int], None]) -> None:
        """Write what is missing, a shard at a time."""
        missing = [shard for shard in shards if not self.has(shard)]
        total = sum(len(roles(shard, self.one_in)) for shard in missing)
        done = 0
        for shard in missing:
            start = done
            done += len(roles(shard, self.one_in))
            self._write(model, shard, lambda read, start=start: report(start + read, total))

    def _write(self, model: LeanModel, shard: Shard, report: Callable[[int], None]) -> None:
        read = list(roles(shard, self.one_in))
        starts = np.cumsum([0, *(_num_positions(shard, index) for index in read)])
        num_positions, hidden = int(starts[-1]), model.embedding.shape[1]
        tokens = {
            "log_sums": np.empty(num_positions, np.float32),
            **{name: np.empty(num_positions, np.int64) for name in ("choices", "next_ids", "sequences")},
        }
        states_file, tokens_file = self.paths(shard.number)
        with explained_os_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            partial = states_file.with_name(f".partial-{states_file.name}")
            shape = (num_positions, model.num_layers, hidden)
            states = np.lib.format.open_memmap(partial, "w+", np.float16, shape)
            for place, index in enumerate(read):
                report(place)
                held = slice(starts[place], starts[place + 1])
                states[held], part = _states_of(model, shard, index)
                for name, array in part.items():
                    tokens[name][held] = array
            states.flush()
            del states
            partial_tokens = tokens_file.with_name(f".partial-{tokens_file.name}")
            np.savez(partial_tokens, **tokens)
            partial_tokens.replace(tokens_file)
            partial.replace(states_file)


def _num_positions(shard: Shard, index: int) -> int:
    return len(shard.sequence(index)) - int(shard.answer_starts[index])


def _states_of(model: LeanModel, shard: Shard, index: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Of one sequence, at the tokens after which a token of the answer comes."""
    ids, num = shard.sequence(index), _num_positions(shard, index)
    layers = tuple(range(1, model.num_layers + 1))
    output = model.forward(ids[:-1].tolist(), model.new_cache(), num_logits=num, feature_layers=layers)
    states = torch.stack([output.features[layer][-num:] for layer in layers], 1)
    states[:, :-1] = over_root_mean_square(states[:, :-1])
    return states.to(torch.float16).numpy(), {
        "log_sums": torch.logsumexp(output.logits, -1).numpy(),
        "choices": output.logits.argmax(-1).numpy(),
        "next_ids": ids[-num:],
        "sequences": np.full(num, index),
    }


def over_root_mean_square(states: torch.Tensor) -> torch.Tensor:
    """[..., hidden] of the size that a norm gives them."""
    return states * states.square().mean(-1, keepdim=True).clamp_min(1e-30).rsqrt()
