"""The training of translators: batches of positions in, maps out, with checkpoints to go on from."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specviz.errors import RunFailed
from specviz.training.answer_examples import AnswerExamples
from specviz.training.answer_states import over_root_mean_square
from specviz.training.checkpoints import (
    CHECKPOINT_FILE,
    SECONDS_BETWEEN_CHECKPOINTS,
    append_log,
    read_checkpoint,
    write_checkpoint,
)
from specviz.training.translator_fit import AffineMaps, fit
from specviz.training.translator_net import CutRows, ExitLoss, TranslatorNet, choose_candidates

POSITIONS_AT_ONCE = 512  # in the fit


@dataclass(frozen=True, slots=True)
class TranslatorPlan:
    """How to train. Equal plans on equal data give equal weights, up to the rounding of another machine.

    Attributes:
        rank: of the maps.
        epochs: passes over the positions.
        fitted: about how many positions the closed-form start is fitted to.
        vocabulary: how many tokens, the most frequent ones, exits are held against.
        common, least_prob, drawn: the tokens that a step looks at: so many of the most frequent ones, those that the
            target gives at least this anywhere, and so many of the others.
    """

    rank: int = 128
    epochs: float = 2
    positions_per_step: int = 64
    learning_rate: float = 1e-3
    warmup_steps: int = 50
    fitted: int = 20_000
    vocabulary: int = 16_384
    common: int = 512
    least_prob: float = 1e-3
    drawn: int = 1024
    seed: int = 1

    def rate_factor(self, progress: float, step: int) -> float:
        """Of the peak learning rate: a warm-up, then half a cosine down to nothing."""
        return min(1, (step + 1) / self.warmup_steps) * 0.5 * (1 + math.cos(math.pi * progress))


class TranslatorTrainer:
    """One training, in a folder of its own: `checkpoint.pt`, `log.jsonl`."""

    def __init__(
        self,
        cut: CutRows,
        final_norm: Tensor,
        epsilon: float,
        training: AnswerExamples,
        plan: TranslatorPlan,
        folder: Path,
        facts: dict[str, Any] | None = None,
    ) -> None:
        """
        Args:
            final_norm: [hidden], the target's.
            facts: what else decides the weights (JSON-plain).

        Raises:
            BadRequest: the folder holds the checkpoint of another training, or a damaged one.
        """
        self.plan, self.folder = plan, folder
        self._facts = {
            **(facts or {}),
            "plan": asdict(plan),
            "data": training.fingerprint,
            "cut": zlib.crc32(cut.vocab_ids.numpy().astype("<u4").tobytes()),
        }
        self._cut, self._training = cut, training
        self._final_norm = final_norm
        held = read_checkpoint(folder, self._facts)
        maps = self._fit() if held is None else AffineMaps(**{name: held["weights"][name] for name in MAP_PARTS})
        self.net = TranslatorNet(maps, final_norm, epsilon)
        self._optimizer = torch.optim.Adam(self.net.parameters(), lr=plan.learning_rate, betas=(0.9, 0.99))
        per_epoch = len(training) // min(plan.positions_per_step, len(training))
        self.num_steps = max(1, round(per_epoch * plan.epochs))
        self._per_epoch, self._epoch, self._order = per_epoch, -1, np.zeros(0, np.int64)
        self.step = 0
        self._is_between_steps = True
        if held is not None:
            self._optimizer.load_state_dict(held["optimizer"])
            self.step = held["step"]

    def train(self, report: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Go on to the end of the plan; interrupted, the state is saved first.

        Raises:
            RunFailed: the loss is not a number any more.
        """
        saved = monotonic()
        is_sound = True
        try:
            while self.step < self.num_steps:
                losses = self._one_step()
                report(self.step, self.num_steps)
                if monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                    self._save()
                    self._log(losses)
                    saved = monotonic()
        except RunFailed:
            is_sound = False
            raise
        finally:
            if is_sound and self._is_between_steps:
                self._save()

    def _one_step(self) -> Tensor:
        for group in self._optimizer.param_groups:
            group["lr"] = self.plan.learning_rate * self.plan.rate_factor(self.step / self.num_steps, self.step)
        positions = self._training.gather(self._indices(self.step))
        generator = torch.Generator().manual_seed(self.plan.seed * 1_000_003 + self.step)
        with torch.no_grad():
            probs = self._cut.target_probs(positions.head_inputs, positions.log_sums)
            candidates = choose_candidates(self._cut, probs, self.plan.least_prob, self.plan.drawn, generator)
        losses = ExitLoss.apply(self.net(positions.states), candidates)
        if not bool(losses.isfinite().all()):
            raise RunFailed(
                f"The loss of step {self.step + 1} is not a number: train again with a smaller learning rate, "
                f"without {self.folder / CHECKPOINT_FILE}."
            )
        self._optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        self._is_between_steps = False  # an interrupt in here leaves some weights old and some new
        self._optimizer.step()
        self.step += 1
        self._is_between_steps = True
        return losses.detach()

    def _indices(self, step: int) -> np.ndarray:
        """Which positions a step learns from: those of an epoch in an order of its own, none twice."""
        epoch, at = divmod(step, self._per_epoch)
        if epoch != self._epoch:
            rng = np.random.Generator(np.random.Philox(key=[self.plan.seed, epoch]))
            self._epoch, self._order = epoch, rng.permutation(len(self._training))
        return self._order[at * self.plan.positions_per_step : (at + 1) * self.plan.positions_per_step]

    def _fit(self) -> AffineMaps:
        """To positions spread over all of the data."""
        chosen = np.arange(0, len(self._training), max(1, len(self._training) // self.plan.fitted))

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            for start in range(0, len(chosen), POSITIONS_AT_ONCE):
                positions = self._training.gather(chosen[start : start + POSITIONS_AT_ONCE])
                yield positions.states, over_root_mean_square(positions.head_inputs / self._final_norm)

        with torch.no_grad():
            return fit(batches(), self.plan.rank)

    def _save(self) -> None:
        write_checkpoint(self.folder, self._facts, self.step, self.net, self._optimizer)

    def _log(self, losses: Tensor) -> None:
        line = {"step": self.step, "of": self.num_steps, "losses": [round(float(loss), 4) for loss in losses]}
        append_log(self.folder, line)


MAP_PARTS = ("scale", "bias", "reduce", "expand")
