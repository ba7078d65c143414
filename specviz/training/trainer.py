"""Step (b) of a distillation: batches in, weights out, with checkpoints to go on from."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from specviz.errors import RunFailed
from specviz.training.checkpoints import (
    CHECKPOINT_FILE,
    SECONDS_BETWEEN_CHECKPOINTS,
    append_log,
    read_checkpoint,
    write_checkpoint,
)
from specviz.training.examples import Batch, Examples
from specviz.training.objective import CutHead, Scores, score
from specviz.training.students import Student

MEASURED_BATCHES = 24  # of the held-out sequences, while training goes on


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train. Equal plans on equal data give equal weights, up to the rounding of another machine.

    Attributes:
        epochs: passes over the data.
        unroll_steps: of the draft head, in the last `unroll_share` of the training; 1 = not.
        later_positions: share of the positions whose loss is computed in each step but the first.
        learning_rate: at its peak, of new weights; `copied_rate` is that of weights taken from the target.
    """

    epochs: float = 3
    tokens_per_batch: int = 1024
    learning_rate: float = 1.5e-3
    copied_rate: float = 7e-4
    weight_decay: float = 0.02
    warmup_steps: int = 80
    unroll_steps: int = 3
    unroll_share: float = 0.25
    later_positions: float = 0.4
    seed: int = 1

    def rate_factor(self, progress: float, step: int) -> float:
        """Of the peak learning rate: a warm-up, then half a cosine down to 2%."""
        return min(1, (step + 1) / self.warmup_steps) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


class Trainer:
    """One training, in a folder of its own: `checkpoint.pt`, `log.jsonl`."""

    def __init__(
        self,
        student: Student,
        head: CutHead,
        training: Examples,
        held_out: Examples,
        plan: Plan,
        folder: Path,
        facts: dict[str, Any] | None = None,
    ) -> None:
        """
        Args:
            facts: what else decides the weights (JSON-plain), such as what the student starts from.

        Raises:
            BadRequest: the folder holds the checkpoint of another training, or a damaged one.
        """
        self.student, self.plan, self.folder = student, plan, folder
        self._facts = {
            **(facts or {}),
            "plan": asdict(plan),
            "data": training.fingerprint,
            "cut": zlib.crc32(head.vocab_ids.numpy().astype("<u4").tobytes()),
            "says_context": head.all_rows is not None,
        }
        self._head, self._held_out, self._training = head, held_out, training
        groups: dict[bool, list[torch.nn.Parameter]] = {True: [], False: []}
        for name, parameter in student.module.named_parameters():
            groups[student.is_new(name)].append(parameter)
        rates = {True: plan.learning_rate, False: plan.copied_rate}
        self._optimizer = torch.optim.AdamW(
            [{"params": groups[new], "lr": rates[new], "peak": rates[new]} for new in groups if groups[new]],
            betas=(0.9, 0.95),
            weight_decay=plan.weight_decay,
        )
        self._batches = self._order()
        self.step = 0
        self._is_between_steps = True
        self._resume()

    @property
    def num_steps(self) -> int:
        return len(self._batches)

    def train(self, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Go on to the end of the plan; interrupted, the state is saved first.

        Raises:
            RunFailed: the loss is not a number any more.
        """
        saved = monotonic()
        is_sound = True
        try:
            while self.step < self.num_steps:
                loss = self._one_step(self._training.batch(self._batches[self.step]))
                report(self.step, self.num_steps)
                if monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                    self._save()
                    self._log(loss)
                    saved = monotonic()
        except RunFailed:
            is_sound = False
            raise
        finally:
            if is_sound and self._is_between_steps:
                self._save()

    def _one_step(self, batch: Batch) -> float:
        progress = self.step / self.num_steps
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * self.plan.rate_factor(progress, self.step)
        unrolled = progress >= 1 - self.plan.unroll_share
        num_steps = min(self.plan.unroll_steps if unrolled else 1, self.student.most_steps)
        chosen = torch.Generator().manual_seed(self.plan.seed * 1_000_003 + self.step)
        self.student.module.train()
        scores = scores_of(self.student, self._head, batch, num_steps, self.plan.later_positions, chosen)
        loss: Tensor = sum(part.mean_loss for part in scores) / len(scores)
        if not bool(loss.isfinite()):
            raise RunFailed(
                f"The loss of step {self.step + 1} is not a number: train again with a smaller learning rate, "
                f"without {self.folder / CHECKPOINT_FILE}."
            )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.student.module.parameters(), 1.0)
        self._is_between_steps = False  # an interrupt in here leaves some weights old and some new
        self._optimizer.step()
        self.step += 1
        self._is_between_steps = True
        return float(scores[0].mean_loss.detach())

    def _order(self) -> list[list[int]]:
        whole = math.ceil(self.plan.epochs)
        batches = [self._training.order(e, self.plan.seed, self.plan.tokens_per_batch) for e in range(whole)]
        flat = [batch for epoch in batches for batch in epoch]
        return flat[: max(1, round(len(flat) * self.plan.epochs / whole))]

    def _resume(self) -> None:
        if (held := read_checkpoint(self.folder, self._facts)) is None:
            return
        self.student.module.load_state_dict(held["weights"])
        self._optimizer.load_state_dict(held["optimizer"])
        self.step = held["step"]

    def _save(self) -> None:
        write_checkpoint(self.folder, self._facts, self.step, self.student.module, self._optimizer)

    def _log(self, loss: float) -> None:
        order = self._held_out.order(0, 0, self.plan.tokens_per_batch)[:MEASURED_BATCHES]
        if not order:
            return
        measured = measure(self.student, self._head, self._held_out.batches(order), 1)
        append_log(self.folder, {"step": self.step, "of": self.num_steps, "loss": loss, "held_out": measured})


def scores_of(
    student: Student,
    head: CutHead,
    batch: Batch,
    num_steps: int,
    later_positions: float = 1,
    chosen: torch.Generator | None = None,
    *,
    measure: bool = False,
) -> list[Scores]:
    """The student's scores on a batch, one for each step of the unrolling."""
    first = student.first_position
    weights = batch.weights[:, first:]
    known = weights > 0
    with torch.no_grad():
        sayable = head.with_context(batch.ids, first)
        states, log_sums = batch.last_states[:, first:][known], batch.log_sums[:, first:][known]
        probs = sayable.target_probs(states, log_sums, known)
        best = head.best_probs(states, log_sums) if measure else None
    scores = []
    for step, inputs in enumerate(student.head_inputs(batch, num_steps)):
        counted = known.clone()
        counted[:, :step] = False
        if step and later_positions < 1:
            counted &= torch.rand(counted.shape, generator=chosen) < later_positions
        logits = sayable.logits(inputs[counted], counted)
        asked = counted[known]
        target_best = None if best is None else best[asked]
        scores.append(score(logits, probs[asked], weights[counted], measure=measure, target_best=target_best))
    return scores


@torch.no_grad()
def measure(student: Student, head: CutHead, batches, num_steps: int) -> list[dict[str, float]]:
    """Loss, greedy agreement and overlap over answers, for each draft position 1.. (fed the target's own tokens)."""
    student.module.eval()
    sums = torch.zeros(num_steps, 4)
    for batch in batches:
        answers = Batch(batch.ids, batch.features, batch.log_sums, (batch.weights == 1).float())
        for step, part in enumerate(scores_of(student, head, answers, num_steps, measure=True)):
            sums[step] += torch.stack([part.loss, part.agreement, part.overlap, part.weight])
    return [
        {"loss": float(a / w), "agreement": float(b / w), "overlap": float(c / w), "tokens": int(w)}
        for a, b, c, w in sums
    ]
