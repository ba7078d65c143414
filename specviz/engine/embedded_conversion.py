"""Make a plain transformers folder (bf16 safetensors, config, tokenizer) from the embedded model's GGUF file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors.torch
import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_gguf_pytorch_utils
from transformers.utils import logging as transformers_logging

NUM_STEPS = 3
MAX_POSITIONS = 8192


def convert(gguf_file: Path, folder: Path, on_step: Callable[[int], None]) -> None:
    """Write the model of `gguf_file` into `folder`, which exists, as `from_pretrained` wants it.

    Takes under a minute, most of it for reading the GGUF file's vocabulary in Python.

    Args:
        on_step: told how many of `NUM_STEPS` are done.
    """
    with _no_other_bars():
        write_tokenizer(gguf_file, folder)
        on_step(1)
        model = AutoModelForCausalLM.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32)
        on_step(2)
        write_model(model, folder)
        on_step(3)


def write_tokenizer(gguf_file: Path, folder: Path) -> None:
    """Write tokenizer.json, its config and the chat template.

    A GGUF file only names its way of splitting text before the BPE ("smollm"), and transformers
    takes GPT-2's for it; SmolLM's also cuts every digit off, which matters after runs of spaces.
    """
    tokenizer = AutoTokenizer.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.model_max_length = MAX_POSITIONS
    tokenizer.save_pretrained(folder)


def write_model(model: torch.nn.Module, folder: Path) -> None:
    """Write the weights, rounded to bf16 and tied ones once, and a config without the mark of quantization.

    `save_pretrained` refuses a model that came from a GGUF file, although its weights are plain by now.
    """
    config = model.config
    del config.quantization_config
    vars(config).pop("_model_name_or_path", None)  # GGUF's working title of the training run
    config.dtype = torch.bfloat16
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    model.generation_config._from_model_config = False
    model.generation_config.save_pretrained(folder)
    weights = {key: tensor.to(torch.bfloat16).contiguous() for key, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del weights["lm_head.weight"]
    with (folder / "model.safetensors").open("wb") as file:
        file.write(safetensors.torch.save(weights, metadata={"format": "pt"}))
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _no_other_bars() -> Iterator[None]:
    """Keep transformers from drawing over our own bar; it has one that its switch does not reach."""
    bars_were_on = transformers_logging.is_progress_bar_enabled()
    gguf_bar = getattr(modeling_gguf_pytorch_utils, "tqdm", None)
    transformers_logging.disable_progress_bar()
    modeling_gguf_pytorch_utils.tqdm = lambda tensors, **_: tensors
    try:
        yield
    finally:
        modeling_gguf_pytorch_utils.tqdm = gguf_bar
        if bars_were_on:
            transformers_logging.enable_progress_bar()
