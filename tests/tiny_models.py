"""Tiny models of real families: random weights, built in memory from a fixed seed, in fp32.

The weights are large enough that greedy text wanders (a model that says one token for ever proves
little), and the later layers are quietened so that a draft made of the first ones is sometimes right.
"""

from __future__ import annotations

import copy
from functools import cache

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from tests.tiny_tokenizers import byte_level_tokenizer

VOCAB_SIZE = len(byte_level_tokenizer())
NUM_LAYERS = 3
MAX_POSITIONS = 128
SLIDING_WINDOW = 8

_SHAPE = {"num_hidden_layers": NUM_LAYERS, "hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4}
_GROUPED = {**_SHAPE, "num_key_value_heads": 2}
_GEMMA = {**_GROUPED, "head_dim": 16}
_ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]

FAMILIES: dict[str, dict] = {
    "llama": _GROUPED,
    "qwen2": _GROUPED,
    "qwen3": {**_GROUPED, "head_dim": 16},
    "gemma": _GEMMA,
    "gemma2": {
        **_GEMMA,
        "layer_types": _ALTERNATING,
        "sliding_window": SLIDING_WINDOW,
        "query_pre_attn_scalar": 16,
        "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
    },
    "gemma3_text": {
        **_GEMMA,
        "layer_types": _ALTERNATING,
        "sliding_window": SLIDING_WINDOW,
        "query_pre_attn_scalar": 16,
    },
    "mistral": {**_GROUPED, "sliding_window": SLIDING_WINDOW},
    "gpt2": {"n_layer": NUM_LAYERS, "n_embd": 48, "n_head": 4},
    "gpt_neox": _SHAPE,
    "phi3": {**_GROUPED, "pad_token_id": 0},
}
SLIDING_FAMILIES = ("gemma2", "gemma3_text", "mistral")

# What each family's initialization is multiplied by, found by looking at the greedy text.
_INIT_STD = {"gpt2": 0.3, "gpt_neox": 0.3}
_QUIET_LATER_LAYERS = 0.35


def build_model(
    family: str = "llama",
    *,
    seed: int = 0,
    vocab_size: int = VOCAB_SIZE,
    max_positions: int = MAX_POSITIONS,
    **overrides,
) -> PreTrainedModel:
    """A new model of `family`: same arguments, same weights."""
    settings = {
        "vocab_size": vocab_size,
        "max_position_embeddings": max_positions,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
        "initializer_range": _INIT_STD.get(family, 0.2),
        "attn_implementation": "eager" if family == "gemma2" else "sdpa",
    }
    if family == "gpt2":
        settings["n_positions"] = settings.pop("max_position_embeddings")
    config = transformers.AutoConfig.for_model(family, **settings | FAMILIES[family] | overrides)
    return _random_model(transformers.AutoModelForCausalLM, config, seed)


@cache
def tiny_model(family: str = "llama", seed: int = 0) -> PreTrainedModel:
    """The shared model of a family; no test changes it."""
    return build_model(family, seed=seed)


@cache
def tiny_draft_of(family: str = "llama") -> PreTrainedModel:
    """The target without its last layer and with noise on its weights: right about half the time."""
    num_layers = {"n_layer" if family == "gpt2" else "num_hidden_layers": NUM_LAYERS - 1}
    layer_types = {"layer_types": _ALTERNATING[:-1]} if "layer_types" in FAMILIES[family] else {}
    shorter = build_model(family, **num_layers, **layer_types)
    shorter.load_state_dict(tiny_model(family).state_dict(), strict=False)
    return noisy_copy(shorter, 0.03)


def noisy_copy(model: PreTrainedModel, noise: float, seed: int = 7) -> PreTrainedModel:
    """A copy whose matrices carry Gaussian noise of `noise` times their own spread."""
    noisy = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in noisy.parameters():
            if parameter.dim() >= 2:
                parameter += noise * parameter.std() * torch.randn(parameter.shape, generator=generator)
    return noisy.eval()


def recurrent_model(family: str = "mamba") -> PreTrainedModel:
    """A model whose state cannot be cut back: mamba, or a hybrid (jamba, qwen3_next)."""
    common = {"vocab_size": VOCAB_SIZE, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    shapes = {
        "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        "jamba": {
            **_GROUPED,
            "num_experts": 1,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "use_mamba_kernels": False,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
        },
        "qwen3_next": {
            **_GEMMA,
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
        },
    }
    config = transformers.AutoConfig.for_model(family, **common | shapes[family])
    return _random_model(transformers.AutoModelForCausalLM, config, seed=0)


def encoder_decoder_model() -> PreTrainedModel:
    """T5: not a causal language model at all."""
    config = transformers.T5Config(
        vocab_size=VOCAB_SIZE, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return _random_model(transformers.AutoModelForSeq2SeqLM, config, seed=0)


def _random_model(auto_class: type, config: transformers.PretrainedConfig, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = auto_class.from_config(config, dtype=torch.float32)
    _quieten_later_layers(model)
    return model.eval()


def _quieten_later_layers(model: PreTrainedModel) -> None:
    layers = next((m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == NUM_LAYERS), None)
    if layers is None:
        return
    output_names = ("o_proj", "down_proj", "c_proj", "attention.dense", "dense_4h_to_h")
    if hasattr(layers[0], "post_feedforward_layernorm"):  # it would undo the quietening of the matrices
        output_names += ("post_attention_layernorm", "post_feedforward_layernorm")
    with torch.no_grad():
        for layer in layers[NUM_LAYERS // 2 :]:
            for name, parameter in layer.named_parameters():
                if any(output_name in name for output_name in output_names):
                    parameter *= _QUIET_LATER_LAYERS
