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

from specviz.engine.fact_table import FactTable
from specviz.engine.weight_folders import read_json_object, read_tensors
from specviz.errors import BadRequest

if TYPE_CHECKING:
    from torch import Tensor

EXIT_HEADS_FILE = "specviz-exit-heads.json"
WEIGHTS_FILE = "weights.safetensors"
FORMAT = 1
SHIPPED_DIR = Path(__file__).resolve().parents[2] / "assets" / "exit_heads"
REMEDY = "restore the folder of exit heads, or take the plain ones"


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
    path = folder / EXIT_HEADS_FILE
    table = FactTable(path, REMEDY, read_json_object(path, "folder of exit heads"))
    if (found := table.values.get("format")) != FORMAT or isinstance(found, bool):
        raise BadRequest(
            f"{path}: format is {found!r}, and this version reads {FORMAT}: "
            "take exit heads that were made for this version."
        )
    target = table.table("target")
    facts = ExitHeadFacts(
        folder=folder,
        name=table.text("name"),
        target_name=target.text("name"),
        vocab_size=target.whole("vocab_size"),
        hidden=target.whole("hidden"),
        num_layers=target.whole("num_layers"),
        embedding_sha256=target.text("embedding_sha256"),
        rank=table.whole("rank"),
        cut=table.whole("cut"),
        exit_layers=table.layers("exit_layers"),
        trained=table.table("trained").values,
    )
    layers = facts.exit_layers
    if layers != tuple(sorted(layers)) or layers[0] < 1 or layers[-1] >= facts.num_layers:
        table.refuse("exit_layers", f"layers from 1 to {facts.num_layers - 1}, the lowest first")
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
    raise BadRequest(f"{facts.folder / WEIGHTS_FILE} {what}: {REMEDY}.")


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"
