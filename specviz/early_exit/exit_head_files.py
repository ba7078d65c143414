"""Folders of trained exit heads: what they say of themselves, and their weights.

A folder belongs to one target and holds `specviz-exit-heads.json`, `weights.safetensors` and a README. Tensors:
`vocab_ids` int32 [cut] ascending, the tokens that confidences are computed over; and for layers 1..L - 1, one after
the other, `scale` and `bias` float32 [layers, hidden], `reduce` int8 [layers, rank, hidden] and `expand` int8
[layers, hidden, rank] with `reduce.scales` [layers, rank] and `expand.scales` [layers, hidden] in float32. Norm and
output head are the target's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.engine.weight_folders import read_json_object, read_tensors
from specviz.errors import BadRequest

if TYPE_CHECKING:
    from torch import Tensor

EXIT_HEADS_FILE = "specviz-exit-heads.json"
WEIGHTS_FILE = "weights.safetensors"
FORMAT = 1
SHIPPED_DIR = Path(__file__).resolve().parents[2] / "assets" / "exit_heads"
LARGEST_SIZE = 2**24


@dataclass(frozen=True, slots=True)
class ExitHeadFacts:
    """Exit heads, known without their weights.

    Attributes:
        target_name, vocab_size, hidden, num_layers, embedding_sha256: the target they were trained for.
        rank: of the maps.
        cut: how many tokens confidences are computed over.
        exit_layers: where it pays to look, ascending.
        trained: how they were made, as their maker wrote it.
    """

    folder: Path
    name: str
    target_name: str
    vocab_size: int
    hidden: int
    num_layers: int
    embedding_sha256: str
    rank: int
    cut: int
    exit_layers: tuple[int, ...]
    trained: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExitHeadFile:
    """Exit heads with their weights, in float32.

    Attributes:
        vocab_ids: [cut] int64, ascending.
        scale, bias: [layers, hidden]; row i is of layer i + 1.
        reduce: [layers, rank, hidden].
        expand: [layers, hidden, rank].
    """

    facts: ExitHeadFacts
    vocab_ids: Tensor
    scale: Tensor
    bias: Tensor
    reduce: Tensor
    expand: Tensor

    @property
    def num_params(self) -> int:
        return sum(tensor.numel() for tensor in (self.scale, self.bias, self.reduce, self.expand))

    def refuse_other_target(self, embedding: Tensor, num_layers: int, target_name: str) -> None:
        """Raise BadRequest unless the target is the one that these heads were trained for.

        Args:
            embedding: [vocab, hidden], the target's input embedding.
        """
        from specviz.engine.draft_files import embedding_fingerprint

        facts = self.facts
        sizes = (facts.vocab_size, facts.hidden, facts.num_layers)
        if (*embedding.shape, num_layers) == sizes and embedding_fingerprint(embedding) == facts.embedding_sha256:
            return
        raise BadRequest(
            f"{facts.name} was trained for {facts.target_name}, and {target_name} has other weights: take exit heads "
            "that were trained for this target, or the plain ones."
        )


def is_exit_heads_folder(path: str | Path) -> bool:
    """Whether exit heads of this format lie there."""
    return (Path(path) / EXIT_HEADS_FILE).is_file()


def shipped_exit_heads(embedding: Tensor) -> Path | None:
    """The folder of the first shipped exit heads for the target of this input embedding [vocab, hidden]; None if
    there are none.

    Raises:
        BadRequest: a shipped folder is damaged.
    """
    from specviz.engine.draft_files import embedding_fingerprint

    folders = sorted(path.parent for path in SHIPPED_DIR.glob(f"*/{EXIT_HEADS_FILE}"))
    facts = [read_exit_head_facts(folder) for folder in folders]
    fitting = [held for held in facts if (held.vocab_size, held.hidden) == tuple(embedding.shape)]
    fingerprint = embedding_fingerprint(embedding) if fitting else None
    return next((held.folder for held in fitting if held.embedding_sha256 == fingerprint), None)


def read_exit_head_facts(folder: str | Path) -> ExitHeadFacts:
    """The facts of a folder of exit heads.

    Raises:
        BadRequest: no such file, not this format, or a value that cannot be.
    """
    folder = Path(folder)
    values = read_json_object(folder / EXIT_HEADS_FILE, "folder of exit heads")
    target = values.get("target")
    if not isinstance(target, dict):
        _refuse_value(folder, "target", target, "an object")
    if values.get("format") != FORMAT or isinstance(values.get("format"), bool):
        raise BadRequest(
            f"{folder / EXIT_HEADS_FILE}: format is {values.get('format')!r}, and this version reads {FORMAT}: "
            "take exit heads that were made for this version."
        )
    facts = ExitHeadFacts(
        folder=folder,
        name=_text(folder, values, "name"),
        target_name=_text(folder, target, "name"),
        vocab_size=_whole(folder, target, "vocab_size"),
        hidden=_whole(folder, target, "hidden"),
        num_layers=_whole(folder, target, "num_layers"),
        embedding_sha256=_text(folder, target, "embedding_sha256"),
        rank=_whole(folder, values, "rank"),
        cut=_whole(folder, values, "cut"),
        exit_layers=_layers(folder, values, "exit_layers"),
        trained=values.get("trained") if isinstance(values.get("trained"), dict) else {},
    )
    if facts.exit_layers[-1] >= facts.num_layers:
        _refuse_value(folder, "exit_layers", list(facts.exit_layers), f"layers from 1 to {facts.num_layers - 1}")
    return facts


def read_exit_heads(folder: str | Path) -> ExitHeadFile:
    """A folder of exit heads, checked against its own facts.

    Raises:
        BadRequest: what is missing, damaged, or not what the facts say.
    """
    facts = read_exit_head_facts(folder)
    tensors = read_tensors(facts.folder / WEIGHTS_FILE, "folder of exit heads")
    layers = facts.num_layers - 1
    shapes = {
        "vocab_ids": ("int32", (facts.cut,)),
        "scale": ("float32", (layers, facts.hidden)),
        "bias": ("float32", (layers, facts.hidden)),
        "reduce": ("int8", (layers, facts.rank, facts.hidden)),
        "reduce.scales": ("float32", (layers, facts.rank)),
        "expand": ("int8", (layers, facts.hidden, facts.rank)),
        "expand.scales": ("float32", (layers, facts.hidden)),
    }
    for name, (dtype, shape) in shapes.items():
        _check_tensor(facts, tensors, name, dtype, shape)
    ids = tensors["vocab_ids"].long()
    if bool((ids.diff() <= 0).any()):
        _refuse(facts, "has vocab_ids that do not ascend")
    if int(ids[0]) < 0 or int(ids[-1]) >= facts.vocab_size:
        _refuse(facts, f"has vocab_ids outside of 0 to {facts.vocab_size - 1}, which its target knows")
    return ExitHeadFile(
        facts,
        ids,
        tensors["scale"],
        tensors["bias"],
        tensors["reduce"].float() * tensors["reduce.scales"][..., None],
        tensors["expand"].float() * tensors["expand.scales"][..., None],
    )


def _check_tensor(
    facts: ExitHeadFacts, tensors: dict[str, Tensor], name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    if name not in tensors:
        _refuse(facts, f"has no {name}")
    tensor = tensors[name]
    found = str(tensor.dtype).removeprefix("torch.")
    if found != dtype or tuple(tensor.shape) != shape:
        _refuse(
            facts, f"has a {name} of {_times(tensor.shape)} in {found}, and it has to be {_times(shape)} in {dtype}"
        )
    if dtype == "float32" and not bool(tensor.isfinite().all()):
        _refuse(facts, f"has a {name} that is not all numbers (NaN or infinite)")


def _refuse(facts: ExitHeadFacts, what: str) -> None:
    raise BadRequest(f"{facts.folder / WEIGHTS_FILE} {what}: restore the folder of exit heads, or take the plain ones.")


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def _refuse_value(folder: Path, key: str, value: Any, expected: str) -> None:
    raise BadRequest(
        f"{folder / EXIT_HEADS_FILE}: {key} is {str(value)[:80]!r}, but it has to be {expected}: "
        "restore the folder of exit heads, or take the plain ones."
    )


def _text(folder: Path, values: dict[str, Any], key: str) -> str:
    if not isinstance(value := values.get(key), str) or not value:
        _refuse_value(folder, key, value, "a text")
    return value


def _whole(folder: Path, values: dict[str, Any], key: str) -> int:
    if type(value := values.get(key)) is not int or not 1 <= value <= LARGEST_SIZE:
        _refuse_value(folder, key, value, f"a whole number from 1 to {LARGEST_SIZE}")
    return value


def _layers(folder: Path, values: dict[str, Any], key: str) -> tuple[int, ...]:
    value = values.get(key)
    is_list = isinstance(value, list) and bool(value) and all(type(layer) is int for layer in value)
    if not is_list or value != sorted(set(value)) or value[0] < 1:
        _refuse_value(folder, key, value, "a list of layers, the lowest first")
    return tuple(value)
