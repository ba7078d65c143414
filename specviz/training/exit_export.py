"""A folder of exit heads as it is written; `specviz/early_exit/exit_head_files.py` reads it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specviz.cache import explained_os_errors
from specviz.early_exit.exit_head_files import EXIT_HEADS_FILE, FORMAT, WEIGHTS_FILE, ExitHeadFile, read_exit_heads
from specviz.errors import RunFailed
from specviz.training.translator_fit import AffineMaps

LARGEST_FILE = 10_000_000  # bytes


@dataclass(frozen=True, slots=True)
class ExitExport:
    """What a folder of exit heads is made of.

    Attributes:
        vocab_ids: [cut] ascending.
        target: the `target` of the facts.
        trained: how they were made, for the facts and the card.
    """

    name: str
    maps: AffineMaps
    vocab_ids: Tensor
    exit_layers: tuple[int, ...]
    target: dict[str, Any]
    trained: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Matrices in int8, and facts.

        Raises:
            RunFailed: the weights are not numbers, or too many for a file.
        """
        weights = self._weights()
        facts = {
            "format": FORMAT,
            "name": self.name,
            "target": self.target,
            "rank": self.maps.reduce.shape[1],
            "cut": len(self.vocab_ids),
            "exit_layers": list(self.exit_layers),
            "trained": self.trained,
        }
        with explained_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for file, data in (
                (WEIGHTS_FILE, weights),
                (EXIT_HEADS_FILE, (json.dumps(facts, indent=2) + "\n").encode()),
            ):
                partial = folder / f".{file}"
                partial.write_bytes(data)
                partial.replace(folder / file)

    def as_read(self) -> ExitHeadFile:
        """As somebody reads it who has it from disk."""
        with tempfile.TemporaryDirectory(prefix="specviz-exit-heads-") as folder:
            self.write(Path(folder))
            return read_exit_heads(folder)

    def _weights(self) -> bytes:
        import safetensors.torch

        maps = self.maps
        tensors = {"vocab_ids": self.vocab_ids.to(torch.int32), "scale": maps.scale, "bias": maps.bias}
        for name in ("reduce", "expand"):
            tensors[name], tensors[f"{name}.scales"] = _rounded(getattr(maps, name))
        if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            raise RunFailed("The weights are not all numbers: train again with a smaller learning rate.")
        data = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})
        if len(data) > LARGEST_FILE:
            raise RunFailed(
                f"The exit heads take {len(data) / 1e6:.1f} MB, and a file may have {LARGEST_FILE / 1e6:.0f}: choose a "
                "smaller target."
            )
        return data


def _rounded(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """int8 [layers, out, in] and scales [layers, out]."""
    scales = matrices.abs().amax(-1).clamp_min(1e-12) / 127
    return (matrices / scales[..., None]).round().to(torch.int8), scales
