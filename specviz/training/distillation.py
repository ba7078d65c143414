"""A whole distillation: from a target to a draft folder, in steps that can each be broken off and gone on with."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specviz.cache import explained_os_errors
from specviz.engine.draft_files import DraftFile, embedding_fingerprint
from specviz.engine.draft_head_net import HeadShape
from specviz.engine.lean_weights import fuse
from specviz.engine.vocabulary import Vocabulary
from specviz.errors import BadRequest
from specviz.lab.cores import available_cores
from specviz.lab.suite import SuitePrompt
from specviz.training.corpus import HELD_OUT_EVERY, Corpus
from specviz.training.evaluation import evaluate_in_engine, evaluate_on_text, held_out_prompts
from specviz.training.examples import Examples
from specviz.training.export import Export, rotary_base
from specviz.training.generation import generate
from specviz.training.model_card import model_card
from specviz.training.objective import CutHead
from specviz.training.starting import history, refuse_other_start, start_weights, weights_sha256
from specviz.training.states import StateStore, compute_states
from specviz.training.students import HeadStudent, ModelStudent, Student, initialise_model
from specviz.training.suite_answers import answered_suite
from specviz.training.teacher import Teacher
from specviz.training.trainer import Plan, Trainer
from specviz.training.writing import Lengths

Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What to distil.

    Attributes:
        kind: "draft_head" or "draft_model".
        name: of the draft.
        feature_layers: of the target, that a draft head reads; the target's last one is always kept beside them.
        layers: of the target, that a draft model starts from.
        num_tokens: how many tokens the target writes, and the draft learns from: the first shards that hold so many.
        after: tokens of them that the draft does not learn from: the first shards that hold so many.
        cut: how many tokens of the vocabulary the draft can say.
        work: folder of states, checkpoints and metrics.
        corpus: folder of the token ids.
        output: the draft folder.
        dtype: of the target, as in `load_pair`.
        start_from: a draft to go on training, in place of the target's own layers.
        suite: prompts to measure on too, beside those that are held out.
    """

    kind: str
    name: str
    work: Path
    corpus: Path
    output: Path
    feature_layers: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    num_tokens: int = 1_000_000
    after: int = 0
    cut: int = 4096
    seed: int = 1
    rows: int = 32
    dtype: str = "auto"
    lengths: Lengths = field(default_factory=Lengths)
    plan: Plan = field(default_factory=Plan)
    evaluated_prompts: int = 40
    start_from: DraftFile | None = None
    suite: tuple[SuitePrompt, ...] = ()


class Distillation:
    """One draft for one target."""

    def __init__(self, teacher: Teacher, options: Options, report: Report = lambda stage, done, total: None) -> None:
        """
        Raises:
            BadRequest: a layer that the target does not have, a cut that is wider than its vocabulary, or a draft to
                start from that is another's.
        """
        self.teacher, self.options, self._report = teacher, options, report
        num_layers = teacher.model.num_layers
        named = {"feature_layers": options.feature_layers, "layers": options.layers}
        for name, layers in named.items():
            if wrong := [layer for layer in layers if not 0 <= layer < num_layers + (name == "feature_layers")]:
                raise BadRequest(
                    f"{name} has {wrong[0]}: {teacher.model.name} has {num_layers} layers, choose from 0 to "
                    f"{num_layers - (name == 'layers')}."
                )
        if not 1 <= options.cut <= len(teacher.embedding):
            raise BadRequest(
                f"cut is {options.cut}: {teacher.model.name} knows {len(teacher.embedding)} tokens, choose 1 to that."
            )
        if options.start_from is not None:
            refuse_other_start(options.start_from, teacher, options.kind, options.feature_layers, len(options.layers))
        self.corpus = Corpus(options.corpus)
        kept = tuple(layer for layer in options.feature_layers if layer != num_layers)
        self.store = StateStore(options.work / "states", (*kept, num_layers))
        self._target_facts = {
            "target": teacher.model.name,
            "precision": teacher.model.precision,
            "embedding_sha256": embedding_fingerprint(teacher.embedding),
        }

    def generate(self) -> None:
        """Fill the corpus."""
        lengths = self.options.lengths.within(self.teacher.model.max_positions, self.teacher.frame)
        self.corpus.claim({**self._target_facts, "seed": self.options.seed, "lengths": asdict(lengths)})
        self.store.claim(self.corpus.facts())
        generate(
            self.teacher.model,
            self.teacher.frame,
            self.corpus,
            self.store,
            num_tokens=self.options.num_tokens,
            seed=self.options.seed,
            workers=available_cores(),
            rows=self.options.rows,
            lengths=lengths,
            report=lambda done, total: self._report("generate", done, total),
        )

    def train(self) -> None:
        """Train to the end of the plan, from the last checkpoint on if there is one.

        Raises:
            RunFailed: the draft will be too large for a file, or the loss is not a number any more.
        """
        self._export({}).weights(self.teacher)
        if self.trainer.step < self.trainer.num_steps:
            self._metrics_file.unlink(missing_ok=True)
        self.trainer.train(lambda done, total: self._report("train", done, total))

    def evaluate(self) -> dict[str, Any]:
        """Measure what is trained so far, on held-out text and in the engine; kept in `metrics.json`.

        Raises:
            BadRequest: no text is held out.
        """
        tokenizer = self._tokenizer()
        prompts = held_out_prompts(self.corpus, self.teacher.frame, tokenizer, self.options.evaluated_prompts)
        if not prompts or not len(self.held_out):
            raise BadRequest(
                f"{self.corpus.folder} holds no prompts to measure with, which one in {HELD_OUT_EVERY} is: generate more tokens."
            )
        on_text = self._measured_along(self.held_out)
        on_suite = {"on_suite": self._measured_along(self._answered_suite(tokenizer))} if self.options.suite else {}
        draft = self.folder / "draft"
        self._export({}).write(draft, self.teacher)
        in_engine = evaluate_in_engine(
            self.teacher,
            draft,
            self.options.kind,
            prompts,
            dtype=self.options.dtype,
            report=lambda done, total: self._report("evaluate", done, total),
        )
        metrics = {"step": self.trainer.step, "on_text": on_text, **on_suite, "in_engine": in_engine}
        with explained_os_errors(self.folder):
            self._metrics_file.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
        return metrics

    def export(self, bench: dict[str, Any] | None = None) -> Path:
        """Write the draft folder, with what `evaluate` has measured at this step of the training, if it has.

        Raises:
            BadRequest: nothing is trained yet.
            RunFailed: the weights are not numbers, or too many for a file.
        """
        if self.trainer.step == 0:
            raise BadRequest(f"{self.folder} holds no trained draft yet: run the step train first.")
        path = self._metrics_file
        metrics = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if metrics.pop("step", None) != self.trainer.step:
            metrics = {}
        export = self._export(metrics)
        export.write(self.options.output, self.teacher)
        card = model_card(export.name, self.options.kind, self.teacher.model.name, export.trained, bench)
        with explained_os_errors(self.options.output):
            (self.options.output / "README.md").write_text(card, encoding="utf-8")
        return self.options.output

    @property
    def folder(self) -> Path:
        """Of this kind's training."""
        return self.options.work / self.options.kind

    @property
    def _metrics_file(self) -> Path:
        return self.folder / "metrics.json"

    @cached_property
    def training(self) -> Examples:
        self._compute_missing_states()
        training = self._examples(held_out=False)
        if not len(training):
            raise BadRequest(f"{self.corpus.folder} holds no text to train with: generate more tokens.")
        return training

    @cached_property
    def held_out(self) -> Examples:
        self._compute_missing_states()
        return self._examples(held_out=True)

    def _examples(self, *, held_out: bool) -> Examples:
        options = self.options
        return Examples(self.corpus, self.store, held_out=held_out, num_tokens=options.num_tokens, after=options.after)

    @cached_property
    def head(self) -> CutHead:
        """The target's head, for the tokens that it used most in its answers, and for those of the text so far."""
        counts = self.training.token_counts(len(self.teacher.embedding))
        most = np.sort(np.argsort(-counts, kind="stable")[: self.options.cut])
        ids = torch.from_numpy(most.copy())
        rows = self.teacher.head
        return CutHead(ids, rows[ids].contiguous(), rows if self.teacher.is_tied else None)

    @property
    def student(self) -> Student:
        """As far as it is trained."""
        return self.trainer.student

    @cached_property
    def _new_student(self) -> Student:
        torch.manual_seed(self.options.plan.seed)
        config, embedding = self.teacher.module.config, self.teacher.embedding
        if self.options.kind == "draft_model":
            own = copy.deepcopy(config)
            own.num_hidden_layers = len(self.options.layers)
            own.rope_parameters = {
                "rope_type": "default",
                "rope_theta": rotary_base(config),
            }  # as a draft folder has it
            student = ModelStudent(own, embedding)
            initialise_model(student, self.teacher.module, self.options.layers)
            return self._started(student)
        shape = HeadShape(
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=self.teacher.model.weights.head_dim,
            feature_layers=self.options.feature_layers,
            rotary_base=rotary_base(config),
            epsilon=config.rms_norm_eps,
        )
        student = HeadStudent(shape, embedding)
        student.module.initialise(fuse(self.teacher.module), f"layers.{config.num_hidden_layers - 1}")
        return self._started(student)

    def _started(self, student: Student) -> Student:
        if self.options.start_from is not None:
            start_weights(student, self.options.start_from)
        return student

    @cached_property
    def trainer(self) -> Trainer:
        options = self.options
        start = {"kind": options.kind, "feature_layers": list(options.feature_layers), "layers": list(options.layers)}
        if options.start_from is not None:
            start["start_from"] = weights_sha256(options.start_from)
        return Trainer(
            self._new_student,
            self.head,
            self.training,
            self.held_out,
            options.plan,
            self.folder,
            {**start, **self._target_facts},
        )

    def _compute_missing_states(self) -> None:
        if not self.corpus.numbers():
            raise BadRequest(f"{self.corpus.folder} holds no text yet: run the step generate first.")
        self.corpus.require(self._target_facts)
        self.store.claim(self.corpus.facts())
        shards = [shard for shard in self.corpus.shards(self.options.num_tokens, self.options.after) if len(shard)]
        header_length = len(self.teacher.frame.header)
        missing = [shard for shard in shards if not self.store.has(shard)]
        for done, shard in enumerate(missing):
            self._report("states", done, len(missing))
            self.store.write(shard.number, compute_states(self.teacher.model, shard, self.store.layers, header_length))

    def _export(self, metrics: dict[str, Any]) -> Export:
        ids, vocab_size = self.head.vocab_ids.numpy(), len(self.teacher.embedding)
        says_context = self.head.all_rows is not None
        trained = {
            "data": {
                "tokens": self.training.num_tokens,
                "sequences": len(self.training.places),
                "held_out_sequences": len(self.held_out.places),
                "seed": self.options.seed,
                **({"after": self.options.after} if self.options.after else {}),
            },
            "plan": asdict(self.options.plan),
            "steps": self.trainer.step,
            "parameters": sum(parameter.numel() for parameter in self.student.module.parameters()),
            "cut": {
                "tokens": len(ids),
                "of": vocab_size,
                "coverage": self.held_out.coverage(ids, vocab_size, says_context=False),
                "coverage_with_context": self.held_out.coverage(ids, vocab_size, says_context=says_context),
            },
            **({} if self.options.start_from is None else {"started_from": history(self.options.start_from)}),
            **metrics,
        }
        return Export(self.options.name, self.student, self.head.vocab_ids, trained)

    def _measured_along(self, text: Examples) -> dict[str, Any]:
        return evaluate_on_text(self.student, self.head, text, self.options.plan.tokens_per_batch)

    def _answered_suite(self, tokenizer) -> Examples:
        return answered_suite(
            self.teacher.model,
            Vocabulary(tokenizer),
            self.options.suite,
            self.store.layers,
            self.options.work,
            ends=self.teacher.frame.ends,
            report=lambda done, total: self._report("answer", done, total),
        )

    def _tokenizer(self):
        from specviz.engine.loader import load_tokenizer, locate

        return load_tokenizer(locate(self.teacher.source)[0])
