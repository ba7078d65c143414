"""The draft head's network: one layer over the target's features and the next token's embedding (as in EAGLE-3).

Entry i of a sequence is made of what the target knew at token i, and of token i + 1; its output is about
token i + 2. Where the target has not been yet, the head's own output stands for the target's features
(Li et al. 2025, arXiv 2503.01840, section 3). Plain torch: what is trained, what runs beside a general
target, and the oracle of the lean head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of a draft head.

    Attributes:
        feature_layers: the target's layers whose features go in, after so many layers (the last one normalised).
        rotary_base: of the rotary embedding.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    feature_layers: tuple[int, ...]
    rotary_base: float
    epsilon: float

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


class DraftHeadNet(nn.Module):
    """The weights and what is done with them; the output head is the target's own, cut to some tokens.

    Parameters (no biases): feature_norms [features, hidden], fuse [hidden, features * hidden], state_norm and
    token_norm [hidden], join [hidden, 2 * hidden], attention_norm, qkv, output, mlp_norm, gate_up, down as in
    `specviz/engine/lean_weights.py`, final_norm [hidden].
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        hidden, features = shape.hidden, len(shape.feature_layers)
        self.feature_norms = nn.Parameter(torch.ones(features, hidden))
        self.fuse = nn.Parameter(torch.empty(hidden, features * hidden))
        self.state_norm = nn.Parameter(torch.ones(hidden))
        self.token_norm = nn.Parameter(torch.ones(hidden))
        self.join = nn.Parameter(torch.empty(hidden, 2 * hidden))
        self.attention_norm = nn.Parameter(torch.ones(hidden))
        self.qkv = nn.Parameter(torch.empty(shape.q_width + 2 * shape.kv_width, hidden))
        self.output = nn.Parameter(torch.empty(hidden, shape.q_width))
        self.mlp_norm = nn.Parameter(torch.ones(hidden))
        self.gate_up = nn.Parameter(torch.empty(2 * shape.intermediate, hidden))
        self.down = nn.Parameter(torch.empty(hidden, shape.intermediate))
        self.final_norm = nn.Parameter(torch.ones(hidden))

    def fused(self, features: Tensor) -> Tensor:
        """The state that stands for the target at a token: [..., features, hidden] -> [..., hidden]."""
        normed = functional.rms_norm(features, (self.shape.hidden,), eps=self.shape.epsilon) * self.feature_norms
        return functional.linear(normed.flatten(-2), self.fuse)

    def joined(self, states: Tensor, embeddings: Tensor) -> Tensor:
        """The layer's input, from states and the embeddings of the tokens that came next; all [..., hidden]."""
        both = torch.cat([self._norm(states, self.state_norm), self._norm(embeddings, self.token_norm)], -1)
        return functional.linear(both, self.join)

    def queries_keys_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[..., rows, heads or kv_heads, head_dim] of the layer's inputs [..., rows, hidden] at positions [rows]."""
        shape = self.shape
        qkv = functional.linear(self._norm(x, self.attention_norm), self.qkv)
        q, k, v = qkv.split((shape.q_width, shape.kv_width, shape.kv_width), -1)
        q, k, v = (part.unflatten(-1, (-1, shape.head_dim)) for part in (q, k, v))
        return self._rotated(q, positions), self._rotated(k, positions), v

    def finished(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output, and the state for the next entry: attended [..., rows, heads * head_dim]."""
        x = x + functional.linear(attended, self.output)
        gate, up = functional.linear(self._norm(x, self.mlp_norm), self.gate_up).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, self.down)

    def head_input(self, states: Tensor) -> Tensor:
        """What the output head's rows are multiplied with."""
        return self._norm(states, self.final_norm)

    def initialise(self, tensors: dict[str, Tensor], prefix: str) -> None:
        """Start as the target's own layer (`prefix`, in the names of `lean_weights.py`) behind a mixture of states."""
        hidden, features = self.shape.hidden, len(self.shape.feature_layers)
        eye = torch.eye(hidden)
        with torch.no_grad():
            for name in ("attention_norm", "qkv", "output", "mlp_norm", "gate_up", "down"):
                getattr(self, name).copy_(tensors[f"{prefix}.{name}"])
            self.final_norm.copy_(tensors["final_norm"])
            for matrix, parts in ((self.fuse, features), (self.join, 2)):
                matrix.normal_(0, 0.5 / math.sqrt(matrix.shape[1])).add_(torch.cat([eye / parts] * parts, 1))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, (self.shape.hidden,), weight, self.shape.epsilon)

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        half = self.shape.head_dim // 2
        frequencies = self.shape.rotary_base ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angles = positions.float()[:, None] * frequencies
        cosines, sines = (table[:, None].to(x.dtype) for table in (angles.cos(), angles.sin()))
        first, second = x.chunk(2, -1)
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)
