"""A draft model as a model of transformers: for the general path, and for transformers' own assisted generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from specviz.engine.draft_files import DraftFile

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


def full_width_llama(
    file: DraftFile, embedding: Tensor, dtype: torch.dtype, target_head: Tensor | None = None
) -> LlamaForCausalLM:
    """The draft with the whole vocabulary: its head is the embedding or, where the target does not tie the two, the
    target's own head.

    Args:
        embedding: [vocab, hidden], the target's; shared where device and dtype agree.
        target_head: [vocab, hidden], needed for a draft that is not tied.
    """
    module = _llama(file, embedding, dtype)
    if file.is_tied:
        module.lm_head.weight = module.model.embed_tokens.weight
    else:
        module.lm_head.weight = _frozen(target_head, dtype, embedding.device)
    module.config.tie_word_embeddings = file.is_tied
    return module


def cut_llama(file: DraftFile, embedding: Tensor, dtype: torch.dtype) -> LlamaForCausalLM:
    """The draft as it was trained: its logits are over the draft's `vocab_ids`."""
    module = _llama(file, embedding, dtype)
    head = embedding[file.vocab_ids.to(embedding.device)] if file.is_tied else file.floats()["head"]
    module.lm_head.weight = _frozen(head, dtype, embedding.device)
    return module


def _llama(file: DraftFile, embedding: Tensor, dtype: torch.dtype) -> LlamaForCausalLM:
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    facts, tensors = file.facts, file.floats()
    config = LlamaConfig(
        vocab_size=1,  # so that nothing large is made to be thrown away
        hidden_size=facts.hidden,
        intermediate_size=facts.intermediate,
        num_hidden_layers=facts.num_layers,
        num_attention_heads=facts.heads,
        num_key_value_heads=facts.kv_heads,
        head_dim=facts.head_dim,
        max_position_embeddings=facts.max_positions,
        rms_norm_eps=facts.epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": facts.rotary_base},
        tie_word_embeddings=False,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
        dtype=dtype,
    )
    module = LlamaForCausalLM(config).to(embedding.device)
    parameters = {"model.norm.weight": tensors["final_norm"], "model.embed_tokens.weight": embedding}
    kv_width = facts.kv_heads * facts.head_dim
    for index in range(facts.num_layers):
        ours, theirs = f"layers.{index}.", f"model.layers.{index}."
        qkv = tensors[f"{ours}qkv"].split((facts.heads * facts.head_dim, kv_width, kv_width))
        gate_up = tensors[f"{ours}gate_up"].chunk(2)
        parameters |= {
            f"{theirs}input_layernorm.weight": tensors[f"{ours}attention_norm"],
            f"{theirs}post_attention_layernorm.weight": tensors[f"{ours}mlp_norm"],
            f"{theirs}self_attn.o_proj.weight": tensors[f"{ours}output"],
            f"{theirs}mlp.down_proj.weight": tensors[f"{ours}down"],
            **{f"{theirs}self_attn.{x}_proj.weight": part for x, part in zip("qkv", qkv, strict=True)},
            **{f"{theirs}mlp.{x}_proj.weight": part for x, part in zip(("gate", "up"), gate_up, strict=True)},
        }
    for name, tensor in parameters.items():
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, _frozen(tensor, dtype, embedding.device))
    module.config.vocab_size = module.model.vocab_size = module.vocab_size = len(embedding)
    module.generation_config = GenerationConfig()
    return module.eval()


def _frozen(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    return nn.Parameter(tensor.detach().to(device, dtype), requires_grad=False)
