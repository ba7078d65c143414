"""The two kinds of draft as something to train: from a batch to what their output head is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

from specviz.engine.draft_head_net import DraftHeadNet, HeadShape
from specviz.training.examples import Batch
from specviz.training.unroll import unrolled

NEW_WEIGHTS = ("feature_norms", "fuse", "state_norm", "token_norm", "join")


class Student(Protocol):
    """A draft in training.

    Attributes:
        kind: as in `specviz.config.DRAFTER_KINDS`.
        module: its weights.
        first_position: output i of a sequence is about what follows its token i + first_position.
        most_steps: how often it can be unrolled on its own outputs.
    """

    kind: str
    module: nn.Module
    first_position: int
    most_steps: int

    def head_inputs(self, batch: Batch, num_steps: int) -> Iterator[Tensor]:
        """[sequences, tokens - first_position, hidden], a step of the unrolling after the other; in step s the
        first s - 1 mean nothing."""
        ...

    def is_new(self, parameter_name: str) -> bool:
        """Whether a parameter starts from nothing, not from the target's weights."""
        ...


class HeadStudent:
    """A draft head."""

    kind = "draft_head"
    first_position = 1
    most_steps = 8

    def __init__(self, shape: HeadShape, embedding: Tensor) -> None:
        """
        Args:
            embedding: [vocab, hidden], the target's; not trained.
        """
        self.module = DraftHeadNet(shape)
        self._embedding = embedding

    def head_inputs(self, batch: Batch, num_steps: int) -> Iterator[Tensor]:
        num_features = len(self.module.shape.feature_layers)  # the target's last layer may come after them
        embeddings = self._embedding[batch.ids[:, 1:]].float()
        for states in unrolled(self.module, batch.features[:, :-1, :num_features], embeddings, num_steps):
            yield self.module.head_input(states)

    def is_new(self, parameter_name: str) -> bool:
        return parameter_name in NEW_WEIGHTS


class ModelStudent:
    """A small causal language model of the target's family, with the target's embeddings."""

    kind = "draft_model"
    first_position = 0
    most_steps = 1

    def __init__(self, config: LlamaConfig, embedding: Tensor) -> None:
        """
        Args:
            config: the target's, with fewer layers.
            embedding: [vocab, hidden], the target's; not trained.
        """
        self.module = LlamaModel(config)
        self.module.embed_tokens = None
        self._embedding = embedding

    def head_inputs(self, batch: Batch, num_steps: int) -> Iterator[Tensor]:
        embeddings = self._embedding[batch.ids].float()
        yield self.module(inputs_embeds=embeddings, use_cache=False).last_hidden_state

    def is_new(self, parameter_name: str) -> bool:
        return False


def initialise_model(student: ModelStudent, target: nn.Module, layers: tuple[int, ...]) -> None:
    """Take layers, and the final norm, from a transformers model of the same widths."""
    with torch.no_grad():
        for own, index in zip(student.module.layers, layers, strict=True):
            own.load_state_dict({k: v.float() for k, v in target.model.layers[index].state_dict().items()})
        student.module.norm.weight.copy_(target.model.norm.weight)
