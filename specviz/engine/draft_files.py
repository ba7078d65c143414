"""The weights of a draft folder: read, checked, and given as they are or as plain numbers.

Tensors of `weights.safetensors` (and `weights-2.safetensors`, ..., where one file would be too large): `vocab_ids` int32 [n] ascending, the part of the vocabulary that the draft
can always say; norms float32; a matrix [out, in] as int8 with `NAME.scales` float32 [out] beside it, or as float16
or float32. A draft head has the parameters of `DraftHeadNet`, a draft model those of `lean_weights.py` by
layer. The embedding is the target's and not in the file; nor is the output head, where it is the embedding's
rows at `vocab_ids`: a target that does not tie the two has a matrix `head` [n, hidden] in the file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from specviz.engine.draft_facts import (
    SHIPPED_DIR,
    WEIGHTS_FILE,
    DraftFacts,
    DraftKind,
    further_weights_file,
    read_draft_facts,
    shipped_names,
)
from specviz.engine.weight_folders import read_tensors
from specviz.errors import BadRequest

HASHED_ROWS = 4096
EMBEDDING_NAMES = ("model.embed_tokens.weight", "transformer.wte.weight", "gpt_neox.embed_in.weight")
LARGEST_INT8_PAIR = 128  # see `int8_weights.py`


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A draft with its weights.

    Attributes:
        vocab_ids: [n] int64, ascending.
        tensors: all others, as they are in the file.
    """

    facts: DraftFacts
    vocab_ids: Tensor
    tensors: dict[str, Tensor]

    @property
    def is_tied(self) -> bool:
        """Whether the output head is the target's embedding."""
        return "head" not in self.tensors

    @property
    def is_int8(self) -> bool:
        return any(tensor.dtype == torch.int8 for tensor in self.tensors.values())

    @property
    def num_params(self) -> int:
        """What the draft adds to its target."""
        return sum(tensor.numel() for name, tensor in self.tensors.items() if not name.endswith(".scales"))

    def floats(self) -> dict[str, Tensor]:
        """All tensors in float32, matrices without scales."""
        numbers = {}
        for name, tensor in self.tensors.items():
            if not name.endswith(".scales"):
                scales = self.tensors.get(f"{name}.scales")
                numbers[name] = tensor.float() if scales is None else tensor.float() * scales[:, None]
        return numbers

    def refuse_other_target(self, embedding: Tensor, num_layers: int, target_name: str) -> None:
        """Raise BadRequest unless the target is the one that this draft was trained for.

        Args:
            embedding: [vocab, hidden], the target's input embedding.
            num_layers: of the target.
        """
        facts = self.facts
        expected, found = (facts.vocab_size, facts.target_hidden), tuple(embedding.shape)
        if found != expected:
            raise BadRequest(
                f"{facts.name} was trained for {facts.target_name}, whose embedding is {_times(expected)}, and that of "
                f"{target_name} is {_times(found)}: take a draft that was trained for this target."
            )
        if max(facts.feature_layers, default=0) > num_layers:
            raise BadRequest(
                f"{facts.name} reads layer {max(facts.feature_layers)} of its target, and {target_name} has {num_layers}: "
                "take a draft that was trained for this target."
            )
        if embedding_fingerprint(embedding) != facts.embedding_sha256:
            raise BadRequest(
                f"{facts.name} was trained for {facts.target_name}, and the embedding of {target_name} has another "
                "fingerprint: take a draft that was trained for this target."
            )


def embedding_fingerprint(embedding: Tensor) -> str:
    """sha256 (hex) of an input embedding [vocab, hidden], rounded through bfloat16 to little-endian float32."""
    digest = hashlib.sha256()
    for rows in embedding.detach().split(HASHED_ROWS):
        digest.update(rows.to(torch.bfloat16).float().cpu().contiguous().numpy().astype("<f4", copy=False))
    return digest.hexdigest()


def read_embedding(source: str) -> Tensor | None:
    """The input embedding [vocab, hidden] of a model folder as it is stored, without its other weights; None where
    none is found.

    Raises:
        BadRequest: the weights are damaged.
    """
    from safetensors import SafetensorError, safe_open

    for path in sorted(Path(source).glob("*.safetensors")) if Path(source).is_dir() else ():
        try:
            with safe_open(path, "pt") as file:
                for name in EMBEDDING_NAMES:
                    if name in file.keys():  # noqa: SIM118 - not a dict
                        return file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise BadRequest(f"{path} cannot be read ({error}): fetch the model again.") from None
    return None


def stored_embedding(embedding: Tensor, source: str) -> Tensor:
    """A loaded target's input embedding as the fingerprint wants it: what was rounded to float16 is read again.

    Args:
        source: the target's folder; of a target that is none the loaded embedding has to do.
    """
    stored = read_embedding(source) if embedding.dtype == torch.float16 else None
    return embedding if stored is None else stored


def shipped_for(kind: DraftKind, embedding: Tensor) -> Path | None:
    """The folder of the first shipped draft of that kind that was trained for the target of this input embedding."""
    names = shipped_names(kind)
    fingerprint = embedding_fingerprint(embedding) if names else None
    folders = (SHIPPED_DIR / name for name in names)
    return next((folder for folder in folders if read_draft_facts(folder).embedding_sha256 == fingerprint), None)


def read_draft(folder: str | Path) -> DraftFile:
    """A draft folder, checked against its own facts.

    Raises:
        BadRequest: what is missing, damaged, or not what the facts say.
    """
    facts = read_draft_facts(folder)
    tensors = read_tensors(facts.folder / WEIGHTS_FILE, "draft folder")
    number = 2
    while (further := facts.folder / further_weights_file(number)).exists():
        tensors |= read_tensors(further, "draft folder")
        number += 1
    vocab_ids = _checked_ids(facts, tensors)
    vectors, matrices = _expected(facts, len(vocab_ids), has_head="head" in tensors)
    for name, shape in (vectors | matrices).items():
        tensor = _of_shape(facts, tensors, name, shape)
        if name in vectors or tensor.dtype != torch.int8:
            _refuse_other_dtype(
                facts, name, tensor, ("float32",) if name in vectors else ("float16", "float32", "int8")
            )
            _refuse_not_numbers(facts, name, tensor)
        else:
            scales = _of_shape(facts, tensors, f"{name}.scales", shape[:1])
            _refuse_other_dtype(facts, f"{name}.scales", scales, ("float32",))
            _refuse_not_numbers(facts, f"{name}.scales", scales)
            _refuse_overflow(facts, name, tensor)
    kept = [name for name in tensors if name.removesuffix(".scales") in matrices or name in vectors]
    kept = [name for name in kept if not name.endswith(".scales") or tensors[name[:-7]].dtype == torch.int8]
    return DraftFile(facts, vocab_ids, {name: tensors[name] for name in kept})


def _expected(
    facts: DraftFacts, num_ids: int, *, has_head: bool
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """The shapes of the norms, and of the matrices, by name."""
    hidden, inner, q_width = facts.hidden, facts.intermediate, facts.heads * facts.head_dim
    of_layer = {
        "qkv": (q_width + 2 * facts.kv_heads * facts.head_dim, hidden),
        "output": (hidden, q_width),
        "gate_up": (2 * inner, hidden),
        "down": (hidden, inner),
    }
    is_head = facts.kind == "draft_head"
    prefixes = [""] if is_head else [f"layers.{index}." for index in range(facts.num_layers)]
    vectors: dict[str, tuple[int, ...]] = {"final_norm": (hidden,)}
    matrices: dict[str, tuple[int, ...]] = {}
    for prefix in prefixes:
        vectors |= {f"{prefix}{name}": (hidden,) for name in ("attention_norm", "mlp_norm")}
        matrices |= {f"{prefix}{name}": shape for name, shape in of_layer.items()}
    if is_head:
        num_features = len(facts.feature_layers)
        vectors |= {"feature_norms": (num_features, hidden), "state_norm": (hidden,), "token_norm": (hidden,)}
        matrices |= {"fuse": (hidden, num_features * hidden), "join": (hidden, 2 * hidden)}
    if has_head:
        matrices["head"] = (num_ids, hidden)
    return vectors, matrices


def _checked_ids(facts: DraftFacts, tensors: dict[str, Tensor]) -> Tensor:
    ids = tensors.get("vocab_ids")
    if ids is None:
        _refuse(facts, "has no vocab_ids")
    if ids.dtype != torch.int32 or ids.dim() != 1 or len(ids) == 0:
        _refuse(facts, f"has vocab_ids of {_times(ids.shape)} in {_dtype(ids)}, not a list of ids in int32")
    ids = ids.long()
    if bool((ids.diff() <= 0).any()):
        _refuse(facts, "has vocab_ids that do not ascend")
    if int(ids[0]) < 0 or int(ids[-1]) >= facts.vocab_size:
        _refuse(
            facts,
            f"has vocab_ids from {int(ids[0])} to {int(ids[-1])}, and its target knows 0 to {facts.vocab_size - 1}",
        )
    return ids


def _of_shape(facts: DraftFacts, tensors: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    if name not in tensors:
        _refuse(facts, f"has no {name}")
    if tuple(tensors[name].shape) != shape:
        _refuse(facts, f"has a {name} of {_times(tensors[name].shape)}, and its facts want {_times(shape)}")
    return tensors[name]


def _refuse_other_dtype(facts: DraftFacts, name: str, tensor: Tensor, dtypes: tuple[str, ...]) -> None:
    if _dtype(tensor) not in dtypes:
        _refuse(facts, f"has {name} in {_dtype(tensor)}, not in {' or '.join(dtypes)}")


def _refuse_not_numbers(facts: DraftFacts, name: str, tensor: Tensor) -> None:
    if not bool(tensor.isfinite().all()):
        _refuse(facts, f"has a {name} that is not all numbers (NaN or infinite)")


def _refuse_overflow(facts: DraftFacts, name: str, matrix: Tensor) -> None:
    pairs = torch.nn.functional.pad(matrix, (0, matrix.shape[1] % 2)).to(torch.int16).unflatten(1, (-1, 2))
    if int(pairs.sum(-1).abs().max()) > LARGEST_INT8_PAIR or int(matrix.min()) == -128:
        _refuse(
            facts, f"has a {name} whose neighbours sum to more than {LARGEST_INT8_PAIR}, which overflows on some CPUs"
        )


def _refuse(facts: DraftFacts, what: str) -> None:
    raise BadRequest(f"{facts.folder / WEIGHTS_FILE} {what}: restore the draft folder, or take another draft.")


def _times(shape: tuple[int, ...] | torch.Size) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
