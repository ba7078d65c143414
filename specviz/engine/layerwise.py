"""What early exit asks of a model: a pass that can be looked into, left or interrupted after any layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from torch import Tensor

from specviz.engine.language_model import KVCache, LanguageModel
from specviz.errors import BadRequest


class Onward(Enum):
    """How a pass goes on after a layer.

    NEXT: the next layer is run.
    LEAVE: no more layers are run for these tokens. Those that are left get their keys and values from this state, each
        by its own norm and projections, so that later tokens can attend (state propagation, Schuster et al. 2022,
        arXiv 2207.07061, section 3.1).
    PAUSE: no more layers are run for now; a later pass goes on from this state. The cache's `length` does not grow:
        only the first layers hold these tokens, and `truncate` takes them back.
    """

    NEXT = "next"
    LEAVE = "leave"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class LayerStates:
    """Residual states [rows, hidden] after so many layers, not normalised."""

    layer: int
    states: Tensor


AfterLayer = Callable[[int, Tensor], Onward]  # (layers run, [rows, hidden] states, valid until it returns)


def go_on(layer: int, states: Tensor) -> Onward:
    """An `AfterLayer` that never leaves."""
    return Onward.NEXT


@runtime_checkable
class LayerwiseModel(LanguageModel, Protocol):
    """A language model that can be run layer by layer."""

    @property
    def embedding(self) -> Tensor:
        """[vocab, hidden], of the input."""
        ...

    def forward_by_layer(
        self,
        token_ids: Sequence[int],
        cache: KVCache,
        after_layer: AfterLayer = go_on,
        *,
        look_after: Collection[int] = (),
        paused: LayerStates | None = None,
    ) -> LayerStates:
        """Feed `token_ids`, layer by layer.

        Args:
            after_layer: asked after every layer of `look_after`; the last layer's answer is not heeded.
            paused: the states of all of `token_ids` after the layers that earlier passes, which were paused, ran for
                them; they are the first tokens that the cache's `length` does not count. Without it the tokens come
                after all that the first layers hold.

        Returns:
            Where the pass ended: after the last layer, or where it left or paused.
        """
        ...

    def read_out(self, states: Tensor) -> Tensor:
        """[rows, hidden] states after the last layer, not normalised -> [rows, vocab], the model's own logits."""
        ...

    def cut_read_out(self, vocab_ids: Tensor) -> Callable[[Tensor], Tensor]:
        """`read_out` at `vocab_ids` [cut] only, for a fraction of its cost; it may have `num_bytes` of its own."""
        ...


def require_layerwise(model: LanguageModel, wish: str) -> None:
    """Raise BadRequest unless the model can be run layer by layer.

    Args:
        wish: what it is asked for, as a sentence begins: "mode is 'early_exit'".
    """
    why = getattr(model, "why_not_layerwise", None)
    if not isinstance(model, LayerwiseModel) or why is not None:
        because = f" ({why})" if why else ""
        raise BadRequest(f"{wish}, but {model.name} cannot be run layer by layer{because}: choose another target.")
