"""Drafts of tiny Llamas: random or rigged weights, in memory and in draft folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from specviz.engine.draft_facts import DRAFT_FILE, WEIGHTS_FILE, DraftFacts
from specviz.engine.draft_files import DraftFile, embedding_fingerprint
from specviz.engine.draft_head_net import DraftHeadNet
from specviz.engine.draft_loading import head_network, head_shape
from specviz.engine.int8_weights import round_nearest
from specviz.engine.lean_weights import fuse
from tests.tiny_models import MAX_POSITIONS, VOCAB_SIZE, build_model

FEATURE_LAYERS = (1, 2, 3)


def some_vocab_ids(num_ids: int, vocab_size: int = VOCAB_SIZE, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(vocab_size, generator=generator)[:num_ids].sort().values


def facts_of(module: PreTrainedModel, kind: str, **changes: Any) -> DraftFacts:
    """The facts of a draft whose layers are as wide as its target's."""
    config = module.config
    embedding = module.get_input_embeddings().weight
    facts = DraftFacts(
        folder=Path("memory"),
        kind=kind,
        name=f"a tiny {kind}",
        target_name="tiny llama",
        vocab_size=len(embedding),
        target_hidden=embedding.shape[1],
        embedding_sha256=embedding_fingerprint(embedding),
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.hidden_size // config.num_attention_heads,
        rotary_base=10000.0,
        epsilon=config.rms_norm_eps,
        feature_layers=FEATURE_LAYERS if kind == "draft_head" else (),
        num_layers=1 if kind == "draft_head" else config.num_hidden_layers - 1,
        max_positions=MAX_POSITIONS,
        down_digits=2,
        trained={"steps": 0},
    )
    return replace(facts, **changes)


def random_head(
    module: PreTrainedModel, vocab_ids: Tensor | None = None, seed: int = 0, *, int8: bool = False, **changes: Any
) -> DraftFile:
    """A head that knows nothing."""
    facts = facts_of(module, "draft_head", **changes)
    file = DraftFile(facts, some_vocab_ids(VOCAB_SIZE // 2) if vocab_ids is None else vocab_ids, {})
    generator = torch.Generator().manual_seed(seed)
    net = DraftHeadNet(head_shape(file))
    tensors = {}
    for name, parameter in net.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = name.endswith(("norm", "norms"))
        tensors[name] = 1 + 0.2 * noise if is_norm else noise * 0.7 / parameter.shape[1] ** 0.5
    return finished(file, tensors, module, int8)


def bigram_target(noise: float = 0.025, **changes: Any) -> PreTrainedModel:
    """A target that goes mostly by its last token: `bigram_head` is often right about it."""
    module = build_model("llama", **changes)
    with torch.no_grad():
        for layer in module.model.layers:
            layer.self_attn.o_proj.weight *= noise
            layer.mlp.down_proj.weight *= noise
    return module


def bigram_head(
    module: PreTrainedModel, vocab_ids: Tensor | None = None, noise: float = 0.1, *, int8: bool = False, **changes: Any
) -> DraftFile:
    """A head that says what the target's output head says of the last token alone, with some noise."""
    file = random_head(module, vocab_ids, **changes)
    hidden = file.facts.hidden
    tensors = {name: tensor for name, tensor in file.tensors.items() if name != "head"}
    for name in ("output", "down"):
        tensors[name] = tensors[name] * noise
    for name in ("attention_norm", "mlp_norm", "state_norm", "token_norm"):
        tensors[name] = torch.ones(hidden)
    tensors["join"] = torch.cat([torch.zeros(hidden, hidden), torch.eye(hidden)], 1) + 0.1 * noise * tensors["join"]
    tensors["final_norm"] = module.model.norm.weight.detach().clone()
    return finished(file, tensors, module, int8)


def model_draft(
    module: PreTrainedModel, vocab_ids: Tensor | None = None, noise: float = 0.03, *, int8: bool = False, **changes: Any
) -> DraftFile:
    """The target's first layers with noise on them: right now and then."""
    facts = facts_of(module, "draft_model", **changes)
    file = DraftFile(facts, some_vocab_ids(VOCAB_SIZE // 2) if vocab_ids is None else vocab_ids, {})
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for name, tensor in fuse(module).items():
        if name == "final_norm" or (name.startswith("layers.") and int(name.split(".")[1]) < facts.num_layers):
            tensors[name] = tensor + (
                noise * tensor.std() * torch.randn(tensor.shape, generator=generator) if tensor.dim() > 1 else 0
            )
    return finished(file, tensors, module, int8)


def finished(file: DraftFile, tensors: dict[str, Tensor], module: PreTrainedModel, int8: bool) -> DraftFile:
    """With the output head that an untied target needs, and in 8 bits if so asked."""
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    if not module.config.tie_word_embeddings:
        tensors["head"] = module.lm_head.weight.detach()[file.vocab_ids].clone()
    if int8:
        for name in [name for name, tensor in tensors.items() if tensor.dim() == 2 and name != "feature_norms"]:
            tensors[name], tensors[f"{name}.scales"] = round_nearest(tensors[name])
    return replace(file, tensors=tensors)


def facts_json(facts: DraftFacts) -> dict[str, Any]:
    names = ("hidden", "intermediate", "heads", "kv_heads", "head_dim", "rotary_base", "epsilon")
    own = (
        {"feature_layers": list(facts.feature_layers)}
        if facts.kind == "draft_head"
        else {"num_layers": facts.num_layers}
    )
    return {
        "format": 1,
        "kind": facts.kind,
        "name": facts.name,
        "target": {
            "name": facts.target_name,
            "vocab_size": facts.vocab_size,
            "hidden": facts.target_hidden,
            "embedding_sha256": facts.embedding_sha256,
        },
        "shape": {name: getattr(facts, name) for name in names} | own,
        "max_positions": facts.max_positions,
        "down_digits": facts.down_digits,
        "trained": facts.trained,
    }


def save_draft(folder: Path, file: DraftFile) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DRAFT_FILE).write_text(json.dumps(facts_json(file.facts)), encoding="utf-8")
    save_file(file.tensors | {"vocab_ids": file.vocab_ids.int()}, folder / WEIGHTS_FILE)
    (folder / "README.md").write_text("A draft.\n", encoding="utf-8")
    return folder


def recomputed_head(
    file: DraftFile, features: Tensor, ids: Sequence[int], embedding: Tensor, head: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The oracle: keys, values [kv_heads, entries, head_dim], states [entries, hidden] and cut logits of all entries
    of a text at once, from the target's features [entries, layers, hidden]; a whole pass without a cache."""
    net = head_network(file)
    with torch.no_grad():
        return extended_head(net, net.fused(features), ids, embedding, head)


def extended_head(
    net: DraftHeadNet, fused: Tensor, ids: Sequence[int], embedding: Tensor, head: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `recomputed_head`, from the states [entries, hidden] that go into the join."""
    rows = len(fused)
    with torch.no_grad():
        x = net.joined(fused, embedding[list(ids[1 : rows + 1])].float())
        queries, keys, values = (part.transpose(0, 1) for part in net.queries_keys_values(x, torch.arange(rows)))
        group = net.shape.heads // net.shape.kv_heads
        scores = queries @ keys.repeat_interleave(group, 0).transpose(1, 2) / net.shape.head_dim**0.5
        scores = scores.masked_fill(torch.ones(rows, rows, dtype=torch.bool).triu(1), -torch.inf)
        attended = scores.softmax(-1) @ values.repeat_interleave(group, 0)
        states = net.finished(x, attended.transpose(0, 1).flatten(1))
        return keys, values, states, torch.nn.functional.linear(net.head_input(states), head)
