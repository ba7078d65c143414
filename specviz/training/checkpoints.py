"""The folder of one training: `checkpoint.pt` to go on from, `log.jsonl` of how it went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from specviz.cache import explained_os_errors
from specviz.errors import BadRequest

SECONDS_BETWEEN_CHECKPOINTS = 180
CHECKPOINT_FILE = "checkpoint.pt"
PARTS = ("step", "weights", "optimizer")


def read_checkpoint(folder: Path, facts: dict[str, Any]) -> dict[str, Any] | None:
    """What was saved last: `step`, `weights`, `optimizer`; None where nothing was.

    Args:
        facts: all that decides the weights; those that were saved have to be equal.

    Raises:
        BadRequest: a damaged checkpoint, or one of another training.
    """
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return None
    try:
        held = torch.load(path, weights_only=True)
        found, parts = held["facts"], {name: held[name] for name in PARTS}
    except Exception as error:  # what a damaged file raises is not documented
        raise BadRequest(f"{path} cannot be read as a checkpoint: delete it to train from the start.") from error
    if found != facts:
        raise BadRequest(
            f"{path} belongs to another training (other settings or other data): delete it, or name another folder."
        )
    return parts


def write_checkpoint(
    folder: Path, facts: dict[str, Any], step: int, module: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Whole, or not at all."""
    held = {"facts": facts, "step": step, "weights": module.state_dict(), "optimizer": optimizer.state_dict()}
    with explained_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f".{CHECKPOINT_FILE}"
        torch.save(held, partial)
        partial.replace(folder / CHECKPOINT_FILE)


def append_log(folder: Path, line: dict[str, Any]) -> None:
    """One JSON object a line."""
    with explained_os_errors(folder), (folder / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
