"""Exit heads of the tiny teacher: what they are trained on, and a training of few steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from specviz.engine.draft_files import embedding_fingerprint
from specviz.training import answer_states
from specviz.training import corpus as corpora
from specviz.training.corpus import Corpus
from specviz.training.exit_heads import ExitHeadTraining, ExitOptions
from specviz.training.teacher import Teacher
from specviz.training.translator_trainer import TranslatorPlan
from tests.tiny_models import VOCAB_SIZE
from tests.training.tiny_teachers import some_shard, tiny_teacher

PLAN = TranslatorPlan(
    rank=12, epochs=6, positions_per_step=32, learning_rate=3e-3, warmup_steps=4, vocabulary=200, common=40, drawn=60
)
NAME = "tiny-exit-heads"


def facts_of(teacher: Teacher) -> dict:
    return {
        "target": teacher.model.name,
        "precision": teacher.model.precision,
        "embedding_sha256": embedding_fingerprint(teacher.embedding),
    }


def small_parts(patch: pytest.MonkeyPatch) -> None:
    """Enough text is held out, and kept apart for tuning, of a small corpus."""
    patch.setattr(corpora, "HELD_OUT_EVERY", 5)
    patch.setattr(answer_states, "TUNE_EVERY", 6)


def write_text(folder: Path, teacher: Teacher | None = None, num_shards: int = 2) -> Path:
    teacher = teacher or tiny_teacher()
    corpus = Corpus(folder / "text")
    corpus.claim(facts_of(teacher))
    for number in range(num_shards):
        corpus.write(some_shard(number, 40), VOCAB_SIZE)
    return corpus.folder


def exit_training(
    folder: Path,
    text: Path,
    plan: TranslatorPlan = PLAN,
    report: Callable[[str, int, int], None] = lambda stage, done, total: None,
    teacher: Teacher | None = None,
    **options,
) -> ExitHeadTraining:
    options = {"num_tokens": 10**6, "one_in": 1, "cut": 150} | options
    named = ExitOptions(NAME, folder / "work", text, folder / "heads", plan=plan, **options)
    return ExitHeadTraining(teacher or tiny_teacher(), named, report)
