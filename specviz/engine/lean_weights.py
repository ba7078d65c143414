"""From a transformers model of the Llama family to the weights of the lean forward, by way of plain named tensors.

Names: `embedding`, `final_norm`, `feature_norm`, `head`, `frequencies` and `rotary_scaling` of the positions,
and `layers.N.` + `attention_norm`, `qkv`, `output`, `mlp_norm`, `gate_up`, `down`. A matrix [out, in] is float32,
or int8 with `NAME.scales` [out] beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from specviz.engine.context_length import context_length
from specviz.engine.lean_model import LeanLayer, LeanWeights
from specviz.engine.row_linear import Float32Linear, Int8Linear

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

ROTARY_TYPES = ("default", "linear", "llama3")
MATRICES = ("qkv", "output", "gate_up", "down")


def why_not_lean(config: PretrainedConfig) -> str | None:
    """Why the lean forward does not run a model of this configuration, in a few words; None where it does."""
    if config.model_type != "llama":
        return f"it is of the {config.model_type} family, not of Llama's"
    if config.hidden_act != "silu" or config.attention_bias or config.mlp_bias:
        return "it has biases or another activation than SiLU"
    if (rotary := (config.rope_parameters or {}).get("rope_type", "default")) not in ROTARY_TYPES:
        return f"its rotary embedding is of the type {rotary}"
    if context_length(config) is None:
        return "its context has no known limit"
    return None


def fuse(module: PreTrainedModel) -> dict[str, Tensor]:
    """The model's weights under the names above, float32 but for the embedding, which stays as it is."""
    body = module.model
    tensors = {
        "embedding": body.embed_tokens.weight,
        "final_norm": body.norm.weight.float(),
        "feature_norm": body.norm.weight.float(),
        "head": module.lm_head.weight.float(),
        "frequencies": body.rotary_emb.inv_freq.float(),
        "rotary_scaling": torch.tensor(float(body.rotary_emb.attention_scaling)),
    }
    for index, layer in enumerate(body.layers):
        attention, mlp = layer.self_attn, layer.mlp
        tensors |= {
            f"layers.{index}.{name}": tensor
            for name, tensor in {
                "attention_norm": layer.input_layernorm.weight.float(),
                "qkv": _stack(attention.q_proj, attention.k_proj, attention.v_proj),
                "output": _stack(attention.o_proj),
                "mlp_norm": layer.post_attention_layernorm.weight.float(),
                "gate_up": _stack(mlp.gate_proj, mlp.up_proj),
                "down": _stack(mlp.down_proj),
            }.items()
        }
    return {name: tensor.detach() for name, tensor in tensors.items()}


def int8_bytes(module: PreTrainedModel, embedding_dtype: torch.dtype) -> int:
    """What `LeanModel.weight_bytes` will be in int8, from shapes alone: the module may be on the meta device.

    Args:
        embedding_dtype: of the embedding's rows, which are not quantized.
    """
    tensors: dict[str, list[Tensor]] = {}
    for name, tensor in fuse(module).items():
        tensors.setdefault(name.rsplit(".", 1)[-1], []).append(tensor)
    matrices = [matrix for name in (*MATRICES, "head") for matrix in tensors[name]]
    norms = [norm for name in ("attention_norm", "mlp_norm", "final_norm") for norm in tensors[name]]
    return (
        sum(matrix.numel() + 4 * len(matrix) for matrix in matrices)
        + sum(4 * norm.numel() for norm in norms)
        + tensors["embedding"][0].numel() * embedding_dtype.itemsize
    )


def assemble(tensors: dict[str, Tensor], config: PretrainedConfig) -> LeanWeights:
    """Ready to run."""

    def linear(name: str) -> Int8Linear | Float32Linear:
        scales = tensors.get(f"{name}.scales")
        return Float32Linear(tensors[name]) if scales is None else Int8Linear(tensors[name], scales)

    def norm(name: str) -> np.ndarray:
        return tensors[name].float().numpy()

    layers = tuple(
        LeanLayer(
            attention_norm=norm(f"layers.{index}.attention_norm"),
            mlp_norm=norm(f"layers.{index}.mlp_norm"),
            **{name: linear(f"layers.{index}.{name}") for name in MATRICES},
        )
        for index in range(config.num_hidden_layers)
    )
    cosines, sines = rotary_tables(tensors["frequencies"], tensors["rotary_scaling"], context_length(config))
    return LeanWeights(
        embedding=tensors["embedding"],
        layers=layers,
        final_norm=norm("final_norm"),
        feature_norm=norm("feature_norm"),
        head=linear("head"),
        cosines=cosines,
        sines=sines,
        epsilon=config.rms_norm_eps,
        kv_heads=config.num_key_value_heads,
        head_dim=2 * cosines.shape[1],
        down_digits=2 if "head.scales" in tensors else 1,
    )


def rotary_tables(frequencies: Tensor, scaling: Tensor, num_positions: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, [positions, head_dim / 2], of transformers' own frequencies."""
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
    return tuple((function(angles) * scaling).numpy() for function in (torch.cos, torch.sin))


def _stack(*linears: torch.nn.Linear) -> Tensor:
    return torch.cat([linear.weight.float() for linear in linears])
