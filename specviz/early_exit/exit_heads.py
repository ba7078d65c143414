"""Exit heads: what the model would say if it ended after some of its layers.

A head reads the residual states after a layer. The plain head gives them to the model's own final norm and
output head; translators first map them to what the last layer would have made of them. To be sure or not is
asked at every exit layer, so it is asked of a cut vocabulary, which costs a fraction of the whole head.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from specviz.early_exit.exit_settings import handful_of
from specviz.engine.draft_files import read_draft, shipped_for
from specviz.engine.layerwise import LayerwiseModel
from specviz.errors import BadRequest


@runtime_checkable
class ExitHeads(Protocol):
    """Heads for the layers of one target; unchanging, shared by runs.

    States are residual, [rows, hidden] float32, as they leave a layer: not normalised.
    """

    kind: str  # "plain" or "translators"
    name: str
    layers: tuple[int, ...]  # ascending, from 1 to below the number of layers: those it can read out
    exit_layers: tuple[int, ...]  # ascending, of these: where it pays to look, unless told otherwise
    vocab_ids: Tensor  # [cut] int64, ascending: what `cut_logits` are over (it may be the whole vocabulary)
    num_params: int  # what it adds to its target
    weight_bytes: int

    def translated(self, layer: int, states: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, hidden]: states after `layer` layers as states after the last one; of the last
        layer unchanged."""
        ...

    def cut_logits(self, layer: int, states: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, cut] float32: final norm, and the output head's rows at `vocab_ids`."""
        ...

    def full_logits(self, layer: int, states: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, vocab]; at the last layer exactly the model's own."""
        ...


class PlainHeads:
    """See `ExitHeads`: the model's own final norm and output head, at every layer.

    Args:
        vocab_ids: what the cut logits are over; None = the whole vocabulary.
    """

    kind = "plain"
    num_params = 0

    def __init__(self, target: LayerwiseModel, vocab_ids: Tensor | None = None) -> None:
        self.name = "final norm and output head"
        self.layers = tuple(range(1, target.num_layers))
        self.exit_layers = handful_of(target.num_layers)
        self.vocab_ids = (torch.arange(target.vocab_size) if vocab_ids is None else vocab_ids).to(target.device)
        self._read_out = target.read_out
        self._read_out_cut = target.read_out if vocab_ids is None else target.cut_read_out(vocab_ids)
        self.weight_bytes = getattr(self._read_out_cut, "num_bytes", 0)

    def translated(self, layer: int, states: Tensor) -> Tensor:
        return states

    def cut_logits(self, layer: int, states: Tensor) -> Tensor:
        return self._read_out_cut(states).float()

    def full_logits(self, layer: int, states: Tensor) -> Tensor:
        return self._read_out(states)


def open_exit_heads(target: LayerwiseModel, kind: str = "auto") -> ExitHeads:
    """The heads of a kind (one of `EXIT_HEADS`) for a target.

    Raises:
        BadRequest: translators were asked for, and there are none for this target; or they are damaged.
    """
    if kind != "plain":
        from specviz.early_exit.translators import open_translators

        if (translators := open_translators(target)) is not None:
            return translators
        if kind == "translators":
            raise BadRequest(
                f"exit_heads is 'translators', and none were trained for {target.name}: choose plain or auto, or train "
                "some (python -m specviz distill --kind exit_heads)."
            )
    return PlainHeads(target, cut_ids_for(target))


def cut_ids_for(target: LayerwiseModel) -> Tensor | None:
    """The tokens that the target really uses, [cut] ascending, as its shipped draft head knows them; None without one."""
    folder = shipped_for("draft_head", target.embedding)
    return None if folder is None else read_draft(folder).vocab_ids
