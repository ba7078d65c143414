"""The two files of a folder of trained weights: an object of facts in JSON, and tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.errors import BadRequest

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_JSON = 1 << 20  # bytes


def read_json_object(path: Path, folder_is: str) -> dict[str, Any]:
    """
    Args:
        folder_is: what the folder is called in a sentence: "draft folder".

    Raises:
        BadRequest: the file cannot be read, or holds no JSON object.
    """
    try:
        with path.open("rb") as file:
            values = json.loads(file.read(LARGEST_JSON))
    except OSError as error:
        raise BadRequest(f"{path} cannot be read ({error.strerror}): name a {folder_is} that holds one.") from None
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{path} is not JSON ({error}): restore the {folder_is}.") from None
    if not isinstance(values, dict):
        raise BadRequest(f"{path} holds no JSON object: restore the {folder_is}.")
    return values


def read_tensors(path: Path, folder_is: str) -> dict[str, Tensor]:
    """All tensors of a safetensors file.

    Raises:
        BadRequest: the file cannot be read, or is damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise BadRequest(f"{path} cannot be read ({first_line}): restore the {folder_is}.") from None
