"""Loading a lean model: whether it can be, from which files, and the int8 copy that is made once and kept.

Which path a model takes is decided here, by `why_general`: the lean forward for Llama-like models in int8
on x86 CPUs, transformers' own modules for everything else.
"""

from __future__ import annotations

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specviz.cache import explained_os_errors
from specviz.engine.embedded import INT8_FILE

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from specviz.engine.lean_model import LeanModel

TIMED_LENGTH = 16  # positions in the cache while threads are timed
CALIBRATION_FILE = Path(__file__).resolve().parents[2] / "assets" / "quantization" / "calibration.jsonl"


def why_general(device: torch.device) -> str | None:
    """Why int8 models do not take the lean path on this machine, in a few words; None where they do."""
    if device.type != "cpu":
        return f"int8 runs on CPUs only here, and the device is {device.type}"
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        return "this build of torch lacks the x86 int8 kernels (fbgemm)"
    if find_spec("numba") is None:
        return "numba is not installed"
    return None


def quantized(module: PreTrainedModel, tokenizer) -> dict[str, Tensor]:
    """Int8 tensors of a float32 module, by the names of `lean_weights.py`; takes about a minute for 135M weights.

    Raises:
        RunFailed: the weights are not numbers.
    """
    from specviz.engine.context_length import context_length
    from specviz.engine.int8_weights import quantize, watch_inputs
    from specviz.engine.lean_weights import assemble, fuse
    from specviz.engine.vocabulary import QUIET

    tensors = fuse(module)
    texts = [json.loads(line)["text"] for line in CALIBRATION_FILE.read_text(encoding="utf-8").splitlines()]
    longest = context_length(module.config)
    ids = [tokenizer(text, add_special_tokens=False, **QUIET)["input_ids"][:longest] for text in texts]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a factorisation's many small steps wait for each other where another program runs
    try:
        with torch.no_grad():
            return quantize(tensors, watch_inputs(assemble(tensors, module.config), ids))
    finally:
        torch.set_num_threads(threads)


def lean_int8(
    tensors: dict[str, Tensor], config: PretrainedConfig, name: str, revision: str | None, num_params: int
) -> LeanModel:
    """The model, with a governor of its threads."""
    from specviz.engine.lean_model import LeanModel
    from specviz.engine.lean_weights import assemble
    from specviz.engine.threads import ThreadGovernor

    model = LeanModel(assemble(tensors, config), name, revision, torch.int8, num_params)
    cache, length = model.new_cache(), min(TIMED_LENGTH, model.max_positions - 1)
    model.forward([0] * length, cache, num_logits=0)

    def one_token_pass() -> None:
        model.forward([0], cache)
        cache.truncate(length)

    model.governor = ThreadGovernor(one_token_pass)
    return model


def write_int8(folder: Path) -> Path:
    """Make the int8 copy of a model folder inside it, unless it is there; returns the file.

    Raises:
        SpecVizError: the folder cannot be written.
    """
    import safetensors.torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    path = folder / INT8_FILE
    if path.exists():
        return path
    logging.disable_progress_bar()
    module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tensors = quantized(module, AutoTokenizer.from_pretrained(folder))
    del tensors["embedding"]  # as it is in the folder's own weights
    facts = {"format": "pt", "num_params": str(sum(parameter.numel() for parameter in module.parameters()))}
    with explained_os_errors(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".int8-") as partial:
        file = Path(partial) / INT8_FILE
        file.write_bytes(safetensors.torch.save({key: t.contiguous() for key, t in tensors.items()}, metadata=facts))
        file.replace(path)
    return path


def read_int8(folder: Path) -> tuple[dict[str, Tensor], int]:
    """(tensors by the names of `lean_weights.py`, the number of parameters) of a folder with an int8 copy."""
    from safetensors import safe_open

    with safe_open(folder / INT8_FILE, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
        num_params = int(file.metadata()["num_params"])
    with safe_open(folder / "model.safetensors", "pt") as file:
        tensors["embedding"] = file.get_tensor("model.embed_tokens.weight")
    return tensors, num_params
