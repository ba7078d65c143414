"""What a draft folder says of itself: `specviz-draft.json`, and the drafts that are shipped.

A draft folder holds a draft that belongs to one target: `specviz-draft.json` (read here, without torch),
`weights.safetensors` (`draft_files.py`) and a README.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from specviz.engine.fact_table import FactTable
from specviz.engine.weight_folders import read_json_object
from specviz.errors import BadRequest

DRAFT_FILE = "specviz-draft.json"
WEIGHTS_FILE = "weights.safetensors"
FORMAT = 1
SHIPPED_DIR = Path(__file__).resolve().parents[2] / "assets" / "drafts"

DraftKind = Literal["draft_head", "draft_model"]
DRAFT_KINDS: tuple[DraftKind, ...] = ("draft_head", "draft_model")

SIZES = ("hidden", "intermediate", "heads", "kv_heads", "head_dim")
REMEDY = "restore the draft folder, or take another draft"


@dataclass(frozen=True, slots=True)
class DraftFacts:
    """A draft, known without its weights.

    Attributes:
        target_name, vocab_size, target_hidden, embedding_sha256: the target it was trained for.
        hidden, intermediate, heads, kv_heads, head_dim, rotary_base, epsilon: the shape of its layers.
        feature_layers: of the target, for a draft head; () for a draft model.
        num_layers: 1 for a draft head.
        down_digits: 2 where the input of `down` is given in two digits of 8 bits (see `lean_kernels.gate_rows`).
        trained: how it was made, as its maker wrote it.
    """

    folder: Path
    kind: DraftKind
    name: str
    target_name: str
    vocab_size: int
    target_hidden: int
    embedding_sha256: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_base: float
    epsilon: float
    feature_layers: tuple[int, ...]
    num_layers: int
    max_positions: int
    down_digits: int
    trained: dict[str, Any]


def further_weights_file(number: int | str) -> str:
    """Name of a further file of weights, from 2 on: files are kept small enough for any host."""
    return f"weights-{number}.safetensors"


def is_draft_folder(path: str | Path) -> bool:
    """Whether a draft of this format lies there."""
    return (Path(path) / DRAFT_FILE).is_file()


def find_draft_folder(source: str) -> Path | None:
    """The folder of a draft that is named by its folder or, if it is shipped, by its name; None if it is neither."""
    if is_draft_folder(source):
        return Path(source)
    is_name = source not in ("", ".", "..") and "/" not in source and "\\" not in source
    return SHIPPED_DIR / source if is_name and is_draft_folder(SHIPPED_DIR / source) else None


def shipped_names(kind: DraftKind | None = None) -> tuple[str, ...]:
    """The shipped drafts (of a kind) by name; a broken one has no kind."""
    names = sorted(path.parent.name for path in SHIPPED_DIR.glob(f"*/{DRAFT_FILE}"))
    return tuple(name for name in names if kind is None or _kind_of(SHIPPED_DIR / name) == kind)


def draft_kind_of(draft: str) -> str:
    """Which kind of drafter runs a draft: a folder says it, and everything else is a draft model.

    Raises:
        BadRequest: the draft folder is damaged.
    """
    folder = find_draft_folder(draft)
    return "draft_model" if folder is None else read_draft_facts(folder).kind


def why_no_draft(kind: DraftKind, draft: str | None, *, is_embedded: bool) -> str | None:
    """Why a drafter of that kind has nothing to run, in a sentence; None where it has, as far as is known without weights.

    Args:
        draft: what was given as a draft.
        is_embedded: whether the target is the embedded one, for which drafts are shipped.
    """
    named = kind.replace("_", " ")
    if draft is not None:
        found = draft_kind_of(draft)
        return None if found == kind else f"The draft {draft!r} is for the drafter {found}: there is no {named}."
    if is_embedded and shipped_names(kind):
        return None
    return f"There is no {named}: name one with --draft, or take a --preset that has one."


def shipped_sentence() -> str:
    """Which drafts can be given by name, in a sentence."""
    names = shipped_names()
    return f"The drafts that are shipped are {', '.join(names)}." if names else "No drafts are shipped with this copy."


def read_draft_facts(folder: str | Path) -> DraftFacts:
    """The facts of a draft folder.

    Raises:
        BadRequest: no such file, not this format, or a value that cannot be.
    """
    folder = Path(folder)
    path = folder / DRAFT_FILE
    table = FactTable(path, REMEDY, read_json_object(path, "draft folder"))
    if (found := table.values.get("format")) != FORMAT or isinstance(found, bool):
        raise BadRequest(
            f"{path}: format is {found!r}, and this version reads {FORMAT}: "
            "take a draft that was made for this version."
        )
    kind = table.one_of("kind", DRAFT_KINDS)
    target, shape = table.table("target"), table.table("shape")
    is_head = kind == "draft_head"
    facts = DraftFacts(
        folder=folder,
        kind=kind,
        name=table.text("name"),
        target_name=target.text("name"),
        vocab_size=target.whole("vocab_size"),
        target_hidden=target.whole("hidden"),
        embedding_sha256=target.text("embedding_sha256"),
        **{size: shape.whole(size) for size in SIZES},
        rotary_base=shape.positive("rotary_base"),
        epsilon=shape.positive("epsilon"),
        feature_layers=shape.layers("feature_layers") if is_head else (),
        num_layers=1 if is_head else shape.whole("num_layers"),
        max_positions=table.whole("max_positions"),
        down_digits=table.one_of("down_digits", (1, 2)),
        trained=table.table("trained").values,
    )
    if facts.hidden != facts.target_hidden:
        shape.refuse("hidden", f"the target's {facts.target_hidden}, whose embedding it shares")
    if facts.heads % facts.kv_heads:
        shape.refuse("kv_heads", f"a divisor of the {facts.heads} heads")
    if facts.head_dim % 2:
        shape.refuse("head_dim", "an even number")
    return facts


def _kind_of(folder: Path) -> str | None:
    try:
        return read_draft_facts(folder).kind
    except BadRequest:
        return None
