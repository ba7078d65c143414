"""Perplexity of a model on given texts, so that two precisions of one model can be compared on the same ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specviz.lab.engines import Setup

if TYPE_CHECKING:
    from specviz.engine.language_model import LanguageModel

CHUNK_TOKENS = 64  # logits of so many tokens are held at once


@dataclass(frozen=True, slots=True)
class TextLoss:
    """How hard a model found its texts: minus the sum of the natural log probabilities of their tokens.

    Attributes:
        num_tokens: tokens that were predicted: all of each text but its first.
    """

    negative_log_likelihood: float = 0.0
    num_tokens: int = 0

    def __add__(self, other: TextLoss) -> TextLoss:
        return TextLoss(
            self.negative_log_likelihood + other.negative_log_likelihood, self.num_tokens + other.num_tokens
        )

    @property
    def perplexity(self) -> float | None:
        """e to the mean loss a token; None when there was nothing to predict."""
        return math.exp(self.negative_log_likelihood / self.num_tokens) if self.num_tokens else None


def perplexity(model: LanguageModel, texts: Sequence[Sequence[int]]) -> float | None:
    """The perplexity over all tokens of all texts but each text's first, which nothing predicts."""
    return sum((text_loss(model, text) for text in texts), TextLoss()).perplexity


def text_loss(model: LanguageModel, token_ids: Sequence[int]) -> TextLoss:
    """The loss of one text, read from its beginning; it must fit the model's context."""
    import torch

    cache, loss = model.new_cache(), 0.0
    for start in range(0, len(token_ids) - 1, CHUNK_TOKENS):
        fed = token_ids[start : min(start + CHUNK_TOKENS, len(token_ids) - 1)]
        logits = model.forward(fed, cache).logits.float()
        following = torch.tensor(token_ids[start + 1 : start + 1 + len(fed)], device=logits.device)
        log_probs = logits.log_softmax(-1).gather(-1, following[:, None])
        loss -= float(log_probs.double().sum())
    return TextLoss(loss, max(0, len(token_ids) - 1))


class PerplexityMeter:
    """A worker's job: the loss of one text a request.

    Args:
        name: perplexity_ours (the target as our runs use it), perplexity_hf (as transformers loads it in
            `hf_dtype`) or perplexity_reference (likewise, in float32).
    """

    def __init__(self, name: str, setup: Setup) -> None:
        self._model = _load(name, setup)
        self.facts = {"dtype": str(self._model.dtype).removeprefix("torch.")}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        loss = text_loss(self._model, request["token_ids"])
        return {"negative_log_likelihood": loss.negative_log_likelihood, "num_tokens": loss.num_tokens}


def _load(name: str, setup: Setup) -> LanguageModel:
    from specviz.lab.own_engine import load_own_pair

    if name == "perplexity_ours":
        return load_own_pair(setup, with_draft=False).target
    from specviz.engine.hf_model import TransformersModel
    from specviz.lab.transformers_engine import load_reference

    dtype = setup.hf_dtype if name == "perplexity_hf" else "float32"
    return TransformersModel(load_reference(setup.target, dtype, setup.device, setup.revision), name)


def fold_perplexities(answers: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], num_texts: int) -> dict[str, Any]:
    """`ours`, `hf` and `reference` (float32), null where its worker failed, and what they were taken over."""
    losses = {
        name.removeprefix("perplexity_"): sum((TextLoss(**runs[0]) for runs in texts), TextLoss())
        for name, texts in answers.items()
    }
    return {
        **{name: losses[name].perplexity if name in losses else None for name in ("ours", "hf", "reference")},
        "texts": num_texts,
        "tokens": max((loss.num_tokens for loss in losses.values()), default=0),
    }
