"""From a model of transformers to the static path, or the general path where that does not run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from specviz.engine.context_length import context_length
from specviz.engine.hf_model import TransformersModel
from specviz.engine.lean_weights import rotary_tables, why_not_lean
from specviz.engine.static_model import StaticLayer, StaticModel, StaticWeights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

STATIC_ON = ("cuda",)  # types of devices
TRIED_IDS = 8  # tokens, by which the two paths are compared
MOST_APART = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}  # of the largest logit


def open_module(module: PreTrainedModel, name: str, revision: str | None) -> StaticModel | TransformersModel:
    """On a GPU the static path, where it runs the module and says the same; else the general path."""
    if module.device.type in STATIC_ON and why_not_static(module) is None:
        model = StaticModel(static_weights(module), name, revision)
        if says_the_same(model, module):
            return model
    return TransformersModel(module, name, revision)


def why_not_static(module: PreTrainedModel) -> str | None:
    """Why the static path does not run this model, in a few words; None where it does."""
    if reason := why_not_lean(module.config):
        return reason
    if getattr(module.config, "quantization_config", None) is not None:
        return "its weights are quantized"
    if len({parameter.device for parameter in module.parameters()}) > 1:
        return "it is spread over several devices"
    attention, head_dim = module.model.layers[0].self_attn, 2 * len(module.model.rotary_emb.inv_freq)
    if attention.q_proj.out_features != head_dim * module.config.num_attention_heads:
        return "only a part of each head is turned by its position"
    if context_length(module.config) <= TRIED_IDS:
        return "its context is too short to try it"
    if module.dtype not in MOST_APART:
        return f"its dtype is {module.dtype}"
    return None


@torch.no_grad()
def says_the_same(model: StaticModel, module: PreTrainedModel) -> bool:
    """Whether both give nearly the same logits for a few tokens."""
    ids = [index % model.vocab_size for index in range(1, TRIED_IDS + 1)]
    theirs = module(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0].float()
    ours = model.forward(ids, model.new_cache()).logits.float()
    return bool((ours - theirs).abs().max() <= MOST_APART[model.dtype] * theirs.abs().max())


def static_weights(module: PreTrainedModel) -> StaticWeights:
    """The module's own memory: what is stacked here becomes what the module's parts are views of."""
    config, body = module.config, module.model
    rotary = body.rotary_emb
    scaling = torch.tensor(float(rotary.attention_scaling))
    tables = rotary_tables(rotary.inv_freq.float().cpu(), scaling, context_length(config))
    embedding = body.embed_tokens.weight.detach()
    cosines, sines = (torch.from_numpy(table).to(embedding.device, embedding.dtype) for table in tables)
    return StaticWeights(
        embedding=embedding,
        layers=tuple(_layer(layer) for layer in body.layers),
        final_norm=body.norm.weight.detach(),
        head=embedding if module.lm_head.weight is body.embed_tokens.weight else module.lm_head.weight.detach(),
        cosines=cosines,
        sines=sines,
        epsilon=config.rms_norm_eps,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=2 * cosines.shape[1],
    )


def _layer(layer: nn.Module) -> StaticLayer:
    attention, mlp = layer.self_attn, layer.mlp
    return StaticLayer(
        attention_norm=layer.input_layernorm.weight.detach(),
        qkv=_stacked(attention.q_proj, attention.k_proj, attention.v_proj),
        output=attention.o_proj.weight.detach(),
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=_stacked(mlp.gate_proj, mlp.up_proj),
        down=mlp.down_proj.weight.detach(),
    )


def _stacked(*linears: nn.Linear) -> Tensor:
    """One matrix of several, which become views of it: the weights are in memory once."""
    stacked = torch.cat([linear.weight.detach() for linear in linears])
    for linear, part in zip(linears, stacked.split([len(linear.weight) for linear in linears]), strict=True):
        linear.weight.data = part
    return stacked
