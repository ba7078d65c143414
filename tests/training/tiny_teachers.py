"""Teachers made of tiny Llamas, and texts and states for what learns from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch

from specviz.engine.draft_head_net import HeadShape
from specviz.engine.lean_weights import fuse
from specviz.training.corpus import Corpus, Shard
from specviz.training.examples import Examples
from specviz.training.objective import CutHead
from specviz.training.states import StateStore, compute_states
from specviz.training.students import HeadStudent
from specviz.training.teacher import Teacher
from specviz.training.writing import ChatFrame, Lengths
from tests.engine.lean_models import float32_of, int8_of, some_ids
from tests.tiny_models import VOCAB_SIZE, build_model

HEADER, MIDDLE, END = (1, 3, 7), (4, 9, 10), 2
FRAME = ChatFrame(HEADER, MIDDLE, frozenset([END, 4]), ((20, 21), (22,)))
SHORT = Lengths(user=12, answer=24)
FEATURE_LAYERS = (1, 2)
KEPT_LAYERS = (1, 2, 3)


@cache
def tiny_teacher(dtype: torch.dtype = torch.int8, *, is_tied: bool = False) -> Teacher:
    """The shared teacher; no test changes it."""
    module = build_model("llama", max_positions=256, tie_word_embeddings=is_tied)
    lean = int8_of(module) if dtype == torch.int8 else float32_of(module)
    return Teacher(lean, module, FRAME, None)


def some_shard(number: int, num_sequences: int, seed: int = 0) -> Shard:
    """Sequences of random ids, of different lengths, behind the header."""
    lengths = np.random.default_rng([seed, number]).integers(14, 30, num_sequences)
    return Shard.of(
        number,
        [
            (np.array([*HEADER, *some_ids(int(length), 1000 * seed + 100 * number + index)]), 9)
            for index, length in enumerate(lengths)
        ],
    )


def some_examples(
    folder: Path, shards: Sequence[Shard], layers: tuple[int, ...] = KEPT_LAYERS
) -> tuple[Examples, Examples]:
    """(for training, held out) of shards, with the tiny teacher's states."""
    corpus, store = Corpus(folder / "text"), StateStore(folder / "states", layers)
    for shard in shards:
        corpus.write(shard, VOCAB_SIZE)
        store.write(shard.number, compute_states(tiny_teacher().model, shard, layers, len(HEADER)))
    return tuple(Examples(corpus, store, held_out=held_out) for held_out in (False, True))


def head_shape(teacher: Teacher, feature_layers: tuple[int, ...] = FEATURE_LAYERS) -> HeadShape:
    config = teacher.module.config
    return HeadShape(
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=teacher.model.weights.head_dim,
        feature_layers=feature_layers,
        rotary_base=10000.0,
        epsilon=config.rms_norm_eps,
    )


def new_head_student(
    teacher: Teacher | None = None, seed: int = 0, feature_layers: tuple[int, ...] = FEATURE_LAYERS
) -> HeadStudent:
    """A draft head as a training begins with it."""
    teacher = teacher or tiny_teacher()
    torch.manual_seed(seed)
    student = HeadStudent(head_shape(teacher, feature_layers), teacher.embedding)
    student.module.initialise(fuse(teacher.module), f"layers.{teacher.module.config.num_hidden_layers - 1}")
    return student


def cut_head(teacher: Teacher | None = None, num_ids: int = VOCAB_SIZE // 2) -> CutHead:
    teacher = teacher or tiny_teacher()
    ids = torch.arange(0, VOCAB_SIZE, VOCAB_SIZE // num_ids)[:num_ids]
    return CutHead(ids, teacher.head[ids].contiguous(), teacher.head if teacher.is_tied else None)
