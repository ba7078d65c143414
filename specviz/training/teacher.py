"""The target as a teacher: as it runs by default, and with the weights that a draft starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specviz.engine.lean_model import LeanModel
from specviz.errors import BadRequest
from specviz.training.writing import ChatFrame

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Teacher:
    """
    Attributes:
        model: what writes and judges: int8 where the target runs so, else float32.
        module: the same target in transformers and float32, to take layers from.
        source: what it was loaded from, for `load_pair`.
    """

    model: LeanModel
    module: PreTrainedModel
    frame: ChatFrame
    source: str | None

    @property
    def embedding(self) -> Tensor:
        return self.module.get_input_embeddings().weight.detach()

    @property
    def head(self) -> Tensor:
        return self.module.get_output_embeddings().weight.detach()

    @property
    def is_tied(self) -> bool:
        return self.embedding.data_ptr() == self.head.data_ptr()


def load_teacher(source: str | None, dtype: str = "auto") -> Teacher:
    """A target by folder or hub id; None = the embedded one.

    Raises:
        BadRequest: no such model, or not one of Llama's family; the sentence names it.
    """
    from specviz.engine.lean_weights import assemble, fuse, why_not_lean
    from specviz.engine.loader import load_module, load_pair, locate

    pair = load_pair(source, device="cpu", dtype=dtype)
    folder, name = locate(source)
    module = load_module(folder, torch.device("cpu"), torch.float32, None)
    if reason := why_not_lean(module.config):
        raise BadRequest(
            f"target is {name}, for which no draft can be distilled, since {reason}: choose a Llama-like model."
        )
    model = pair.target
    if not isinstance(model, LeanModel):
        with torch.no_grad():
            weights = assemble(fuse(module), module.config)
        model = LeanModel(weights, name, pair.target.revision, torch.float32, pair.target.num_params)
    model.governor = None  # generation and training divide the threads themselves
    frame = ChatFrame.of(pair.vocabulary.tokenizer, pair.eos_token_ids)
    return Teacher(model, module, frame, source)
