"""Int8 weights for the lean forward: a scale an output row, with the large activations smoothed away first.

SmoothQuant (Xiao et al. 2022, arXiv 2211.10438): where single channels of an input are large, 8 bits a row
are spent on them; so the input is divided by a factor a channel and the weight's columns are multiplied by
it. The division costs nothing, since it goes into the norm, or into the rows that make the input.

CPUs without VNNI add two products of a pair of columns in 16 bits, which overflow beyond 32767. With
activations up to 255 nothing can overflow as long as the two weights of a pair, where they have the same
sign, sum to at most 128. Keeping to that everywhere makes the results the same on every CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numba import njit
from torch import Tensor

from specviz.engine.lean_model import LeanModel, LeanWeights
from specviz.engine.row_linear import Float32Linear
from specviz.errors import RunFailed

LARGEST, LARGEST_PAIR = 127, 128
SMOOTHING = (
    0.8  # the exponent that SmoothQuant calls alpha; chosen by the divergence from float32 on the embedded target
)
ROWS_AT_ONCE = 16
DAMPING = 0.01  # of the mean diagonal, added to the diagonal: GPTQ's


class InputStatistics:
    """Stands for a matrix product and watches its input, rows over their own largest magnitude: the `largest` of each
    channel [in], and the sum of `products` of channels [in, in]."""

    def __init__(self, linear: Float32Linear) -> None:
        self._linear = linear
        self.shape, self.num_bytes = linear.shape, linear.num_bytes
        self.largest = torch.full(self.shape[1:], 1e-5)
        self.products = torch.zeros(self.shape[1], self.shape[1])

    def __call__(self, rows: Tensor) -> Tensor:
        self.largest = torch.maximum(self.largest, rows.abs().amax(0))
        self.products.addmm_(rows.T, rows)
        return self._linear(rows)


def watch_inputs(weights: LeanWeights, texts: Sequence[Sequence[int]]) -> dict[str, InputStatistics]:
    """What goes into each matrix while the model reads `texts` (token ids); by the names of `lean_weights.py`."""
    watched: dict[str, InputStatistics] = {"head": InputStatistics(weights.head)}
    layers = []
    for index, layer in enumerate(weights.layers):
        own = {name: InputStatistics(getattr(layer, name)) for name in ("qkv", "output", "gate_up", "down")}
        watched |= {f"layers.{index}.{name}": statistics for name, statistics in own.items()}
        layers.append(replace(layer, **own))
    model = LeanModel(replace(weights, layers=tuple(layers), head=watched["head"]), "", None, torch.float32, 0)
    for ids in texts:
        model.forward(ids, model.new_cache())
    return watched


def quantize(tensors: dict[str, Tensor], watched: dict[str, InputStatistics]) -> dict[str, Tensor]:
    """Int8 matrices with their scales, and the smoothed norms, under the names of `lean_weights.py`.

    Raises:
        RunFailed: a weight, or what goes into it, is not a number.
    """
    tensors = dict(tensors)
    for name, statistics in watched.items():
        if not (tensors[name].isfinite().all() and statistics.products.isfinite().all()):
            raise RunFailed(
                f"The model's weights are not all numbers (NaN or infinite, seen at {name}): fetch it again."
            )
    factors = {name: torch.ones(statistics.shape[1]) for name, statistics in watched.items()}
    for name, statistics in watched.items():
        layer, _, matrix = name.rpartition(".")
        if matrix != "output":  # heads share their values: nothing to fold a factor into
            factors[name] = smoothing_factors(statistics.largest, tensors[name])
            tensors[name] = tensors[name] * factors[name]
            _fold(tensors, layer, matrix, 1 / factors[name])
    for name, statistics in watched.items():
        products = statistics.products / torch.outer(factors[name], factors[name])
        tensors[name], tensors[f"{name}.scales"] = round_columns(tensors[name], products)
    return tensors


def smoothing_factors(largest_inputs: Tensor, weight: Tensor) -> Tensor:
    """[in], around 1 (SmoothQuant, equation 4)."""
    factors = largest_inputs**SMOOTHING / weight.abs().amax(0).clamp_min(1e-5) ** (1 - SMOOTHING)
    return factors / factors.log().mean().exp()


def round_columns(weight: Tensor, products: Tensor) -> tuple[Tensor, Tensor]:
    """int8 [out, in] and scales [out]: column by column, what rounding a column does to the output is made up for by
    the columns that are still to come (GPTQ, Frantar et al. 2022, arXiv 2210.17323, algorithm 1).

    Args:
        products: [in, in] sum of products of the input's channels.
    """
    products = products.double()
    products.diagonal().add_(DAMPING * products.diagonal().mean() + 1e-10)
    inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(products)), upper=True)
    scales = _row_scales(weight)
    rounded = np.empty(weight.shape, np.int8)
    _round_rows(weight.numpy().copy(), scales.numpy(), inverse.float().contiguous().numpy(), rounded)
    return torch.from_numpy(rounded), scales


def round_nearest(weight: Tensor) -> tuple[Tensor, Tensor]:
    """int8 [out, in] and scales [out], each weight for itself: for a matrix whose input nobody has watched."""
    scales = _row_scales(weight)
    pairs = _neighbours((weight / scales[:, None]).round_().clamp_(-LARGEST, LARGEST))
    first, second = pairs.unbind(-1)
    room = torch.where(first * second > 0, LARGEST_PAIR - first.abs(), torch.full_like(first, LARGEST))
    rounded = torch.stack([first, torch.minimum(second.abs(), room).copysign(second)], -1).flatten(1)
    return rounded[:, : weight.shape[1]].to(torch.int8).contiguous(), scales


def _row_scales(weight: Tensor) -> Tensor:
    """[out], so that no weight and no pair of neighbours is beyond its limit (but for rounding)."""
    pairs = _neighbours(weight)
    sums = pairs.abs().sum(-1) * (pairs.prod(-1) > 0)
    return torch.maximum(weight.abs().amax(1) / LARGEST, sums.amax(1) / LARGEST_PAIR).clamp_min(1e-10)


def _neighbours(weight: Tensor) -> Tensor:
    """[out, pairs, 2], a zero beside the last column where their number is odd."""
    return torch.nn.functional.pad(weight, (0, weight.shape[1] % 2)).unflatten(1, (-1, 2))


@njit(cache=True, nogil=True, fastmath={"contract"})
def _round_rows(weight, scales, inverse, rounded):
    """The loop of `round_columns`, for a few rows at a time, which stay in the cache; `weight` is used up."""
    width = weight.shape[1]
    for start in range(0, weight.shape[0], ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, weight.shape[0])
        for i in range(width):
            for r in range(start, end):
                # The first of a pair may be anything; the second leaves it room, where both have one sign.
                room, before = np.float32(LARGEST), np.float32(0)
                if i % 2:
                    before = np.float32(rounded[r, i - 1])
                    room = min(room, np.float32(LARGEST_PAIR) - abs(before))
                value = np.rint(weight[r, i] / scales[r])
                value = min(value, room if before > 0 else np.float32(LARGEST))
                value = max(value, -room if before < 0 else np.float32(-LARGEST))
                rounded[r, i] = value
                error = (weight[r, i] - value * scales[r]) / inverse[i, i]
                row, factors = weight[r], inverse[i]
                for j in range(i + 1, width):
                    row[j] -= error * factors[j]


def _fold(tensors: dict[str, Tensor], layer: str, matrix: str, factors: Tensor) -> None:
    """Multiply what makes the matrix's input by `factors`."""
    if matrix == "down":
        gate, up = tensors[f"{layer}.gate_up"].chunk(2)
        tensors[f"{layer}.gate_up"] = torch.cat([gate, up * factors[:, None]])
        return
    norm = {"head": "final_norm", "qkv": f"{layer}.attention_norm", "gate_up": f"{layer}.mlp_norm"}[matrix]
    tensors[norm] = tensors[norm] * factors
