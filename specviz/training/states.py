"""What a draft learns from, beside each token: the target's features, and the normaliser of its logits.

The target's last state times its output head gives the logits, so that their whole distribution is known
from [hidden] numbers and one more. Kept as float16 in files that are mapped, not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specviz.cache import explained_os_errors
from specviz.engine.lean_model import LeanModel
from specviz.training.corpus import Shard, claim_states


@dataclass(frozen=True, slots=True)
class States:
    """Of all tokens of a shard, in its order.

    Attributes:
        features: [tokens, layers, hidden] float16.
        log_sums: [tokens] float32, log of the sum of the exponentials of the logits after each token; NaN after
            the last token of a sequence, which may never have been fed, and in the header, which the target reads
            once for all sequences.
    """

    features: np.ndarray
    log_sums: np.ndarray


class StateStore:
    """A folder of states, by the number of the shard and for a choice of layers."""

    def __init__(self, folder: Path, layers: tuple[int, ...]) -> None:
        self._folder, self.layers = folder, layers

    def claim(self, facts: dict[str, Any]) -> None:
        """Say whose text the states are of: its facts are noted in a new folder, in another they have to be the same.

        Raises:
            BadRequest: the folder holds states of another text.
        """
        claim_states(self._folder, facts)

    def paths(self, number: int) -> tuple[Path, Path]:
        name = f"{number:05d}-" + "-".join(map(str, self.layers))
        return self._folder / f"features-{name}.npy", self._folder / f"log-sums-{name}.npy"

    def has(self, shard: Shard) -> bool:
        try:
            states = self.read(shard.number)
        except (OSError, ValueError, EOFError):
            return False
        return len(states.log_sums) == len(states.features) == len(shard.ids)

    def write(self, number: int, states: States) -> None:
        with explained_os_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            for path, array in zip(self.paths(number), (states.features, states.log_sums), strict=True):
                partial = path.with_name(f".partial-{path.name}")
                np.save(partial, array)
                partial.replace(path)

    def read(self, number: int) -> States:
        """From these layers' own file, or from one that holds more of them."""
        features_file, log_sums_file, columns = self._file_with_all(number)
        return States(np.load(features_file, mmap_mode="r")[:, columns], np.load(log_sums_file, mmap_mode="r"))

    def _file_with_all(self, number: int) -> tuple[Path, Path, slice]:
        own = self.paths(number)
        if own[0].exists():  # computed where another file is damaged, or since there was none
            return (*own, slice(None))
        for path in sorted(self._folder.glob(f"features-{number:05d}-*.npy")):
            text = path.stem.removeprefix(f"features-{number:05d}-")
            held = tuple(map(int, text.split("-")))
            if held[-len(self.layers) :] == self.layers:
                log_sums_file = self._folder / f"log-sums-{number:05d}-{text}.npy"
                return path, log_sums_file, slice(len(held) - len(self.layers), len(held))
        return (*own, slice(None))


def compute_states(model: LeanModel, shard: Shard, layers: tuple[int, ...], header_length: int) -> States:
    """By feeding the shard's sequences to the target, as it was fed when it wrote them."""
    hidden = model.weights.embedding.shape[1]
    features = np.zeros((len(shard.ids), len(layers), hidden), np.float16)
    log_sums = np.full(len(shard.ids), np.nan, np.float32)
    for index in range(len(shard)):
        start, end = shard.starts[index], shard.starts[index + 1] - 1
        output = model.forward(shard.ids[start:end].tolist(), model.new_cache(), feature_layers=layers)
        for place, layer in enumerate(layers):
            features[start:end, place] = output.features[layer].numpy()
        log_sums[start:end] = torch.logsumexp(output.logits, -1).numpy()
        log_sums[start : start + header_length - 1] = np.nan
    return States(features, log_sums)
