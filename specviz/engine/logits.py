"""The logits pipeline: from a model's raw logits to the distribution a token is drawn from.

One function for plain and speculative decoding, for target and drafter, position by position, as
if the tokens had come one at a time. Order and meaning are those of transformers' `generate`:
repetition penalty, minimum length, suppressed ids; then temperature, top-k, top-p.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specviz.config import RunSettings
from specviz.errors import BadRequest, RunFailed

NOT_NUMBERS = "The model's logits are not numbers (NaN or infinite): try another dtype, for example float32."


@dataclass(frozen=True, slots=True)
class LogitsPipeline:
    """The pipeline of one run.

    Attributes:
        vocab_size: ids from here on do not exist for the tokenizer (padding of the head) and are cut off.
        num_prompt_tokens: where generation starts, for the minimum length.
    """

    settings: RunSettings
    vocab_size: int
    num_prompt_tokens: int
    eos_token_ids: frozenset[int]

    def __post_init__(self) -> None:
        for token_id in self.settings.suppress_token_ids:
            if token_id >= self.vocab_size:
                raise BadRequest(
                    f"Token id {token_id} is to be suppressed, but the vocabulary ends at {self.vocab_size - 1}."
                )
        never = {*self.settings.suppress_token_ids, *(self.eos_token_ids if self.settings.min_new_tokens else ())}
        if len({i for i in never if i < self.vocab_size}) >= self.vocab_size:
            raise BadRequest("Every token of the vocabulary is suppressed: leave at least one.")

    @property
    def is_greedy(self) -> bool:
        return self.settings.is_greedy

    def adjust(self, logits: Tensor, context_ids: Sequence[int], draft_ids: Sequence[int] = ()) -> Tensor:
        """Logits after penalties and suppression: the model's own distribution, at temperature 1.

        Args:
            logits: [n, width] raw; row i predicts the token after context_ids + draft_ids[:i].
                A head narrower than the vocabulary gets probability 0 for the ids it lacks.

        Returns:
            [n, vocab_size] float32.
        """
        adjusted = self._adjust(logits, context_ids, draft_ids)
        if not torch.isfinite(adjusted.amax(-1)).all():
            raise RunFailed(NOT_NUMBERS)
        return adjusted

    def adjust_draft(self, logits: Tensor, context_ids: Sequence[int]) -> Tensor | None:
        """As `adjust`, for the one row of a drafter; None where all that it can say is suppressed."""
        adjusted = self._adjust(logits, context_ids, ())
        top = adjusted.amax()
        if torch.isfinite(top):
            return adjusted
        if torch.isneginf(top) and torch.isfinite(logits.amax()):
            return None
        raise RunFailed(NOT_NUMBERS)

    def adjust_unseen(self, logits: Tensor, num_context: int) -> Tensor:
        """As `adjust`, for the one row after so many tokens that need not be known, since none of them is penalized or
        suppressed. Asks the device nothing: whether the row is of numbers is for the caller to see."""
        assert self.settings.repetition_penalty == 1.0, "a penalty needs the tokens"
        return self._adjust(logits, range(num_context), ())

    def distribution(self, adjusted: Tensor) -> Tensor:
        """What tokens are drawn from, after temperature, top-k and top-p; not for greedy decoding.

        Args:
            adjusted: [n, vocab] from `adjust`.

        Returns:
            [n, vocab] probabilities.
        """
        assert not self.is_greedy, "greedy decoding takes the argmax"
        # Shifted before it is divided, so that a tiny temperature cannot overflow.
        logits = (adjusted - adjusted.amax(-1, keepdim=True)) / self.settings.temperature
        if 0 < self.settings.top_k < logits.shape[-1]:
            weakest_kept = logits.topk(self.settings.top_k, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < weakest_kept, -torch.inf)
        if self.settings.top_p < 1.0:
            logits = _keep_nucleus(logits, self.settings.top_p)
        return logits.softmax(-1)

    def _adjust(self, logits: Tensor, context_ids: Sequence[int], draft_ids: Sequence[int]) -> Tensor:
        num_rows, width = logits.shape
        assert num_rows <= len(draft_ids) + 1, "a row for each drafted token, and one after them"
        logits = logits[:, : self.vocab_size].float()
        if width < self.vocab_size:
            logits = torch.nn.functional.pad(logits, (0, self.vocab_size - width), value=-torch.inf)
        if self.settings.repetition_penalty != 1.0:
            logits = self._penalize(logits, context_ids, draft_ids)
        num_too_early = self.num_prompt_tokens + self.settings.min_new_tokens - len(context_ids)
        if self.settings.min_new_tokens and num_too_early > 0:
            logits = _exclude(logits, self.eos_token_ids, slice(0, num_too_early))
        if self.settings.suppress_token_ids:
            logits = _exclude(logits, self.settings.suppress_token_ids, slice(None))
        return logits

    def _penalize(self, logits: Tensor, context_ids: Sequence[int], draft_ids: Sequence[int]) -> Tensor:
        """Keskar et al. 2019 (CTRL), section 4.1: seen tokens' logits / penalty, or * penalty below 0."""
        seen = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
        seen[:, _existing(set(context_ids), self.vocab_size)] = True
        for row in range(1, logits.shape[0]):
            seen[row:, _existing({draft_ids[row - 1]}, self.vocab_size)] = True
        penalty = self.settings.repetition_penalty
        return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def argmax_rows(adjusted: Tensor) -> list[int]:
    """The most probable token of each row of [n, vocab], the first of equals; numpy finds it much faster than torch."""
    return (adjusted.numpy() if adjusted.device.type == "cpu" else adjusted).argmax(-1).tolist()


def _existing(token_ids: Iterable[int], vocab_size: int) -> list[int]:
    return [token_id for token_id in token_ids if token_id < vocab_size]


def _exclude(logits: Tensor, token_ids: Iterable[int], rows: slice) -> Tensor:
    logits = logits.clone()
    logits[rows, _existing(token_ids, logits.shape[-1])] = -torch.inf
    return logits


def _keep_nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Holtzman et al. 2020: keep the smallest set of most probable tokens whose mass reaches top_p."""
    ascending, order = logits.sort(dim=-1, stable=True)
    mass_up_to = ascending.softmax(-1).cumsum(-1)
    dropped = mass_up_to <= 1.0 - top_p
    dropped[:, -1] = False
    return logits.masked_fill(dropped.scatter(1, order, dropped), -torch.inf)
