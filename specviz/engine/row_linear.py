"""Matrix products whose every output row depends on its own input row only.

Rows come in divided by their largest magnitude (see `lean_kernels.py`). PyTorch's dynamic int8 takes one
scale for all rows of a pass, so that a token's logits would depend on its neighbours; here the scale is
fixed, since every row spans [-1, 1], and the integer sums are exact whatever their order.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

INT8_STEP, INT8_ZERO = 1 / 127, 128  # of the rows: [-1, 1] becomes 1..255


class Int8Linear:
    """rows @ weight.T with int8 weights (a scale an output) and rows rounded to 8 bits.

    Args:
        weight: [out, in] int8, within `int8_weights.py`'s limit for CPUs without VNNI.
        scales: [out] float32.
    """

    def __init__(self, weight: Tensor, scales: Tensor) -> None:
        self.shape = tuple(weight.shape)
        self.num_bytes = weight.numel() + 4 * scales.numel()
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():  # the tensor type that packing wants is deprecated, packing is not
            warnings.simplefilter("ignore", UserWarning)
            packable = torch._make_per_channel_quantized_tensor(weight, scales.double(), zeros, 0)
        self._packed = torch.ops.quantized.linear_prepack(packable, None)
        self._multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

    def part(self, outputs: Tensor) -> Int8Linear:
        """The product for some of the outputs, [n] indices: the same bits, for less."""
        weight, _ = torch.ops.quantized.linear_unpack(self._packed)
        return Int8Linear(weight.int_repr()[outputs], weight.q_per_channel_scales()[outputs].float())

    def __call__(self, rows: Tensor) -> Tensor:
        return self._multiply(rows, INT8_STEP, INT8_ZERO, self._packed)


class Float32Linear:
    """rows @ weight.T in float32; the order of the sums, so the last bits, may depend on the number of rows."""

    def __init__(self, weight: Tensor) -> None:
        self.shape = tuple(weight.shape)
        self.num_bytes = weight.numel() * weight.element_size()
        self._weight = weight

    def part(self, outputs: Tensor) -> Float32Linear:
        """The product for some of the outputs, [n] indices."""
        return Float32Linear(self._weight[outputs])

    def __call__(self, rows: Tensor) -> Tensor:
        return torch.nn.functional.linear(rows, self._weight)
