"""Exit heads, from a target's text to their folder: trained, measured, exported, each step where it was broken off."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specviz.cache import explained_os_errors
from specviz.early_exit.exit_head_files import ExitHeadFile
from specviz.early_exit.exit_settings import handful_of
from specviz.early_exit.translators import TranslatedHeads
from specviz.engine.draft_files import embedding_fingerprint
from specviz.engine.vocabulary import Vocabulary
from specviz.errors import BadRequest
from specviz.training.answer_examples import MOST_SEQUENCES, AnswerExamples
from specviz.training.answer_states import AnswerStateStore, Role
from specviz.training.corpus import HELD_OUT_EVERY, Corpus, Shard
from specviz.training.exit_card import exit_card
from specviz.training.exit_drafting import draft_with_exits
from specviz.training.exit_export import ExitExport
from specviz.training.exit_measuring import greedy_positions, measure_exits
from specviz.training.exit_replay import MOST_TOKENS, Answer, replay
from specviz.training.teacher import Teacher
from specviz.training.translator_net import CutRows
from specviz.training.translator_trainer import TranslatorPlan, TranslatorTrainer

Report = Callable[[str, int, int], None]

MOST_ANSWERS = 20  # that are followed token by token


@dataclass(frozen=True, slots=True)
class ExitOptions:
    """What exit heads to train.

    Attributes:
        work: folder of states, checkpoints and metrics.
        corpus: folder of the token ids.
        output: the folder of exit heads.
        num_tokens: of the text that is taken from: the first shards that hold so many.
        one_in: of the sequences there, how many there are to one that is learnt from.
        cut: how many tokens of the vocabulary confidences are computed over.
    """

    name: str
    work: Path
    corpus: Path
    output: Path
    num_tokens: int = 1_000_000
    one_in: int = 8
    cut: int = 4096
    plan: TranslatorPlan = field(default_factory=TranslatorPlan)


class ExitHeadTraining:
    """The exit heads of one target."""

    kind = "exit_heads"

    def __init__(
        self, teacher: Teacher, options: ExitOptions, report: Report = lambda stage, done, total: None
    ) -> None:
        """
        Raises:
            BadRequest: a cut that is wider than the target's vocabulary, or a rank than its states.
        """
        self.teacher, self.options, self._report = teacher, options, report
        vocab_size, hidden = teacher.embedding.shape
        if not 1 <= options.cut <= vocab_size:
            raise BadRequest(f"cut is {options.cut}: {teacher.model.name} knows {vocab_size} tokens, choose 1 to that.")
        if not 1 <= options.plan.rank <= hidden:
            raise BadRequest(f"rank is {options.plan.rank}: states of {teacher.model.name} have {hidden} numbers.")
        self.corpus = Corpus(options.corpus)
        self.folder = options.work / self.kind
        self.store = AnswerStateStore(self.folder / "states", options.one_in)

    def train(self) -> None:
        """Train to the end of the plan, from the last checkpoint on if there is one.

        Raises:
            BadRequest: there is no text, or it is another target's.
            RunFailed: the loss is not a number any more.
        """
        if self.trainer.step < self.trainer.num_steps:
            self._metrics_file.unlink(missing_ok=True)
        self.trainer.train(lambda done, total: self._report("train_exits", done, total))

    def evaluate(self) -> dict[str, Any]:
        """Choose the exit layers and measure what is trained so far, as it will run: over the full model's own states,
        with exits that are real, and as a drafter. Each part is kept in `metrics.json` once it is done, and not
        measured again.

        Raises:
            BadRequest: no text is held out.
        """
        if not len(self.held_out):
            raise BadRequest(
                f"{self.corpus.folder} holds no text to measure with, which one prompt in {HELD_OUT_EVERY} is for: "
                "generate more tokens."
            )
        heads, metrics = self._heads(), self._measured() or {"of": self._measured_of}
        if "frontier" not in metrics:
            tune = self._examples("tune")
            metrics |= measure_exits(
                heads,
                self.teacher.model,
                tune if len(tune) else self.training,
                self.held_out,
                report=lambda done, total: self._report("evaluate_exits", done, total),
            )
            self._keep(metrics)
        answers = self._greedy_answers()
        if answers and "real_exits" not in metrics:
            metrics["real_exits"] = replay(
                heads,
                self.teacher.model,
                answers,
                metrics["exit_layers"],
                report=lambda done, total: self._report("replay_exits", done, total),
            )
            self._keep(metrics)
        if answers and "drafting" not in metrics:
            metrics["drafting"] = draft_with_exits(
                heads,
                self.teacher.model,
                answers,
                self._vocabulary(),
                self.teacher.frame.ends,
                report=lambda done, total: self._report("draft_exits", done, total),
            )
            self._keep(metrics)
        return metrics

    def export(self) -> Path:
        """Write the folder of exit heads, with what `evaluate` has measured at this step of the training, if it has.

        Raises:
            BadRequest: nothing is trained yet.
            RunFailed: the weights are not numbers, or too many for a file.
        """
        if self.trainer.step == 0:
            raise BadRequest(f"{self.folder} holds no trained exit heads yet: run the step train first.")
        metrics = self._measured()
        metrics.pop("of", None)
        export = self._export(metrics)
        export.write(self.options.output)
        with explained_os_errors(self.options.output):
            card = exit_card(export.name, self.teacher.model.name, export.trained)
            (self.options.output / "README.md").write_text(card, encoding="utf-8")
        return self.options.output

    @cached_property
    def training(self) -> AnswerExamples:
        training = self._examples("train")
        if not len(training):
            raise BadRequest(f"{self.corpus.folder} holds no text to train with: generate more tokens.")
        return training

    @cached_property
    def held_out(self) -> AnswerExamples:
        return self._examples("held_out")

    @cached_property
    def trainer(self) -> TranslatorTrainer:
        weights = self.teacher.model.weights
        return TranslatorTrainer(
            self._trained_rows,
            torch.from_numpy(weights.feature_norm),
            weights.epsilon,
            self.training,
            self.options.plan,
            self.folder,
            {"kind": self.kind, **self._target_facts},
        )

    @cached_property
    def _shards(self) -> list[Shard]:
        """Those that are taken from, with their states."""
        if not self.corpus.numbers():
            raise BadRequest(f"{self.corpus.folder} holds no text yet: run the step generate first.")
        self.corpus.require(self._target_facts)
        self.store.claim(self.corpus.facts())
        shards = [shard for shard in self.corpus.shards(self.options.num_tokens) if len(shard)]
        self.store.compute(self.teacher.model, shards, lambda done, total: self._report("states", done, total))
        return shards

    def _greedy_answers(self) -> list[Answer]:
        """Held-out answers that are the target's own choice from the first token to the last, cut to a length; some of them."""
        held = self.held_out
        answers = []
        for number in np.unique(held.sequences[greedy_positions(held)]):
            shard = next(shard for shard in self._shards if shard.number == number // MOST_SEQUENCES)
            index = int(number % MOST_SEQUENCES)
            ids, start = shard.sequence(index).tolist(), int(shard.answer_starts[index])
            answers.append(Answer(ids[:start], ids[start : start + MOST_TOKENS]))
        return answers[:: max(1, len(answers) // MOST_ANSWERS)][:MOST_ANSWERS]

    def _examples(self, role: Role) -> AnswerExamples:
        return AnswerExamples(self.store, self._shards, role)

    @cached_property
    def _target_facts(self) -> dict[str, Any]:
        return {
            "target": self.teacher.model.name,
            "precision": self.teacher.model.precision,
            "embedding_sha256": embedding_fingerprint(self.teacher.embedding),
        }

    @cached_property
    def _by_frequency(self) -> np.ndarray:
        """[vocab] ids, those first that the target says most often where it is learnt from."""
        counts = np.zeros(len(self.teacher.embedding), np.int64)
        for shard in self._shards:
            for index in range(len(shard)):
                if not shard.is_held_out(index):
                    np.add.at(counts, shard.sequence(index)[shard.answer_starts[index] :], 1)
        return np.argsort(-counts, kind="stable")

    @property
    def _trained_rows(self) -> CutRows:
        ids = torch.from_numpy(np.sort(self._by_frequency[: self.options.plan.vocabulary]))
        common = torch.from_numpy(self._by_frequency[: self.options.plan.common].copy())
        return CutRows(ids, self.teacher.head[ids].float().contiguous(), torch.isin(ids, common))

    def _export(self, metrics: dict[str, Any]) -> ExitExport:
        model = self.teacher.model
        trained = {
            "data": {
                "positions": len(self.training),
                "sequences": self.training.num_sequences,
                "held_out_sequences": self.held_out.num_sequences,
                "held_out_positions": len(self.held_out),
                "tokens": self.options.num_tokens,
                "one_in": self.options.one_in,
            },
            "plan": asdict(self.options.plan),
            "steps": self.trainer.step,
            **metrics,
        }
        return ExitExport(
            name=self.options.name,
            maps=self.trainer.net.maps,
            vocab_ids=torch.from_numpy(np.sort(self._by_frequency[: self.options.cut])),
            exit_layers=tuple(metrics.get("exit_layers") or handful_of(model.num_layers)),
            target={
                "name": model.name,
                "vocab_size": len(self.teacher.embedding),
                "hidden": self.teacher.embedding.shape[1],
                "num_layers": model.num_layers,
                "embedding_sha256": self._target_facts["embedding_sha256"],
            },
            trained=trained,
        )

    def _heads(self) -> TranslatedHeads:
        """As they will run: with their weights in 8 bits."""
        export = self._export({})
        file: ExitHeadFile = export.as_read()
        return TranslatedHeads(file, self.teacher.model, self.teacher.embedding)

    def _vocabulary(self) -> Vocabulary:
        from specviz.engine.loader import load_tokenizer, locate

        return Vocabulary(load_tokenizer(locate(self.teacher.source)[0]))

    def _measured(self) -> dict[str, Any]:
        """What was kept of these heads; {} where that is of others."""
        path = self._metrics_file
        metrics = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return metrics if metrics.get("of") == self._measured_of else {}

    @property
    def _measured_of(self) -> dict[str, int]:
        """What decides the measures; a training that goes on does away with those of before it."""
        return {
            "step": self.trainer.step,
            "cut": self.options.cut,
            "positions": len(self.training),
            "held_out_positions": len(self.held_out),
        }

    def _keep(self, metrics: dict[str, Any]) -> None:
        with explained_os_errors(self.folder):
            partial = self.folder / ".metrics.json"
            partial.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
            partial.replace(self._metrics_file)

    @property
    def _metrics_file(self) -> Path:
        return self.folder / "metrics.json"
