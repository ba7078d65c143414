"""Step (d) of a distillation: a draft folder (`specviz/engine/draft_files.py` reads it), with its model card."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specviz.cache import explained_os_errors
from specviz.engine.draft_facts import DRAFT_FILE, FORMAT, WEIGHTS_FILE, further_weights_file
from specviz.engine.draft_files import embedding_fingerprint
from specviz.engine.int8_weights import round_nearest
from specviz.engine.lean_weights import MATRICES
from specviz.errors import RunFailed
from specviz.training.students import HeadStudent, ModelStudent
from specviz.training.teacher import Teacher

LARGEST_FILE = 10_000_000  # bytes
HEADER_BYTES = 100_000  # more than the names and shapes of a file's tensors take
DOWN_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Export:
    """What a draft folder is made of.

    Attributes:
        vocab_ids: [cut] ascending, the tokens that it can say.
        trained: how it was made, for the facts and the card.
    """

    name: str
    student: HeadStudent | ModelStudent
    vocab_ids: Tensor
    trained: dict[str, Any]

    def write(self, folder: Path, teacher: Teacher) -> None:
        """Weights in int8, and facts.

        Raises:
            RunFailed: see `weights`.
        """
        files = {
            WEIGHTS_FILE if place == 0 else further_weights_file(place + 1): part
            for place, part in enumerate(self.weights(teacher))
        }
        with explained_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for stale in folder.glob(further_weights_file("*")):
                if stale.name not in files:
                    stale.unlink()
            for file, data in (*files.items(), (DRAFT_FILE, self._facts(teacher))):
                partial = folder / f".{file}"
                partial.write_bytes(data)
                partial.replace(folder / file)

    def weights(self, teacher: Teacher) -> list[bytes]:
        """The contents of the files of weights, each of at most 10 MB.

        Raises:
            RunFailed: the weights are not numbers, or a single one is too large for a file.
        """
        import safetensors.torch

        tensors = self._tensors(teacher)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            raise RunFailed("The weights are not all numbers: train again with a smaller learning rate.")
        parts: list[dict[str, Tensor]] = [{}]
        room = LARGEST_FILE - HEADER_BYTES
        for name, tensor in tensors.items():
            num_bytes = tensor.numel() * tensor.element_size()
            if num_bytes > LARGEST_FILE - HEADER_BYTES:
                raise RunFailed(
                    f"The draft's {name} takes {num_bytes / 1e6:.1f} MB, and a file may have {LARGEST_FILE / 1e6:.0f}: "
                    "choose a smaller target, or a smaller cut."
                )
            if num_bytes > room:
                parts.append({})
                room = LARGEST_FILE - HEADER_BYTES
            parts[-1][name] = tensor
            room -= num_bytes
        return [safetensors.torch.save(part) for part in parts]

    def _facts(self, teacher: Teacher) -> bytes:
        config = teacher.module.config
        is_head = self.student.kind == "draft_head"
        shape = {
            "hidden": config.hidden_size,
            "intermediate": config.intermediate_size,
            "heads": config.num_attention_heads,
            "kv_heads": config.num_key_value_heads,
            "head_dim": teacher.model.weights.head_dim,
            "rotary_base": rotary_base(config),
            "epsilon": config.rms_norm_eps,
        }
        own = (
            {"feature_layers": list(self.student.module.shape.feature_layers)}
            if is_head
            else {"num_layers": len(self.student.module.layers)}
        )
        facts = {
            "format": FORMAT,
            "kind": self.student.kind,
            "name": self.name,
            "target": {
                "name": teacher.model.name,
                "vocab_size": len(teacher.embedding),
                "hidden": config.hidden_size,
                "embedding_sha256": embedding_fingerprint(teacher.embedding),
            },
            "shape": shape | own,
            "max_positions": teacher.model.max_positions,
            "down_digits": DOWN_DIGITS,
            "trained": self.trained,
        }
        return (json.dumps(facts, indent=2) + "\n").encode()

    def _tensors(self, teacher: Teacher) -> dict[str, Tensor]:
        named = head_tensors(self.student) if self.student.kind == "draft_head" else model_tensors(self.student)
        if not teacher.is_tied:
            named["head"] = teacher.head[self.vocab_ids]
        tensors = {"vocab_ids": self.vocab_ids.to(torch.int32)}
        for name, tensor in named.items():
            if tensor.dim() == 2 and name != "feature_norms":
                tensors[name], tensors[f"{name}.scales"] = round_nearest(tensor)
            else:
                tensors[name] = tensor.clone()
        return tensors


def head_tensors(student: HeadStudent) -> dict[str, Tensor]:
    """A draft head's parameters by name."""
    return {name: parameter.detach().float() for name, parameter in student.module.named_parameters()}


def model_tensors(student: ModelStudent) -> dict[str, Tensor]:
    """A draft model's parameters by the names of `lean_weights.py`."""
    tensors = {"final_norm": student.module.norm.weight}
    for index, layer in enumerate(student.module.layers):
        attention, mlp = layer.self_attn, layer.mlp
        parts = {
            "attention_norm": (layer.input_layernorm,),
            "qkv": (attention.q_proj, attention.k_proj, attention.v_proj),
            "output": (attention.o_proj,),
            "mlp_norm": (layer.post_attention_layernorm,),
            "gate_up": (mlp.gate_proj, mlp.up_proj),
            "down": (mlp.down_proj,),
        }
        assert set(MATRICES) < set(parts)
        tensors |= {f"layers.{index}.{name}": torch.cat([m.weight for m in modules]) for name, modules in parts.items()}
    return {name: tensor.detach().float() for name, tensor in tensors.items()}


def rotary_base(config) -> float:
    """Of a Llama configuration."""
    return float(config.rope_parameters["rope_theta"])
