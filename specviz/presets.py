"""What can be chosen by name: the allow-listed pairs (`presets/pairs.toml`) and the lessons (`presets/lessons/*.toml`).

Values read from TOML and checked key by key; no weights, no torch.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from specviz.config import DRAFT_PRECISIONS, DRAFTER_KINDS, RunSettings, default_draft_tokens
from specviz.engine.draft_facts import DRAFT_KINDS, shipped_names
from specviz.errors import BadRequest

PRESETS_DIR = Path(__file__).resolve().parent.parent / "presets"
EMBEDDED_TARGET = "embedded"
HEAD_SETTINGS = {"num_draft_tokens": default_draft_tokens("draft_head"), "lookup_first": True}  # the fastest by `bench`


@dataclass(frozen=True, slots=True)
class Pair:
    """A target, and what may draft for it.

    Attributes:
        target, draft: hub ids; the target may also be "embedded". No draft = only drafters without a model.
        target_params, draft_params: how many parameters, rounded; for memory estimates before loading.
        drafters: the drafter kinds that make sense here, the best one first.
        gated: whether the hub wants a licence accepted and a login.
        verified: whether the revisions below (or, for the embedded target, a sha256) were really read.
        target_revision, draft_revision: commits of the hub repositories.
    """

    name: str
    title: str
    target: str
    target_params: int
    draft: str | None = None
    draft_params: int = 0
    drafters: tuple[str, ...] = ("prompt_lookup",)
    gated: bool = False
    note: str = ""
    verified: bool = False
    target_revision: str | None = None
    draft_revision: str | None = None

    @property
    def is_embedded(self) -> bool:
        return self.target == EMBEDDED_TARGET

    def weight_bytes(self, bytes_per_param: float = 2.0) -> int:
        """Estimated bytes of both models' weights, by default in 16 bits."""
        return round((self.target_params + self.draft_params) * bytes_per_param)

    @property
    def best_settings(self) -> dict[str, Any]:
        """The settings of its best drafter, by name."""
        best = self.drafters[0]
        return {"drafter": best} | (HEAD_SETTINGS if best == "draft_head" else {})


@dataclass(frozen=True, slots=True)
class Preset:
    """A pair with settings and, in a lesson, a prompt and the one sentence that says what to look at.

    Attributes:
        name: the lesson's file name without ".toml", or the pair's name.
        order: lessons are shown in rising order.
        raw: whether the prompt is given to the model as it is, without a chat template.
        draft_precision: of the weights of a draft head or draft model.
        settings: what differs from the defaults of `RunSettings`, by name.
    """

    name: str
    title: str
    pair: Pair
    lesson: str = ""
    prompt: str | None = None
    order: int = 0
    raw: bool = False
    draft_precision: str = "auto"
    settings: dict[str, Any] = field(default_factory=dict)

    def run_settings(self, **overrides: Any) -> RunSettings:
        """The settings to run it with; `overrides` win over the preset's own."""
        return RunSettings.from_dict({**self.settings, **overrides})


@dataclass(frozen=True, slots=True)
class _LessonFile:
    """The keys of one lesson file."""

    title: str
    lesson: str
    prompt: str
    order: int
    pair: str = EMBEDDED_TARGET
    raw: bool = False
    draft_precision: str = "auto"
    settings: dict[str, Any] = field(default_factory=dict)


def load_pairs(path: Path = PRESETS_DIR / "pairs.toml") -> tuple[Pair, ...]:
    """All pairs, the embedded one first, without the drafters whose draft is not shipped with this copy.

    Raises:
        BadRequest: naming file, key and the nearest valid key.
    """
    table = _read_toml(path)
    _check_keys(table, ("pair",), str(path.name))
    pairs = []
    for number, entry in enumerate(table.get("pair", []), start=1):
        where = f"{path.name}, pair {entry.get('name', number)!r}"
        pair = _build(Pair, entry, where)
        for kind in pair.drafters:
            if kind not in DRAFTER_KINDS:
                raise BadRequest(
                    f"{where}: drafters has {kind!r}{_did_you_mean(kind, DRAFTER_KINDS)}: "
                    f"choose from {', '.join(DRAFTER_KINDS)}."
                )
        # For the embedded target drafts are shipped.
        if not pair.is_embedded and ("draft_model" in pair.drafters) != (pair.draft is not None):
            raise BadRequest(f'{where}: "draft_model" in drafters and a draft go together: give both or neither.')
        if pair.name in (other.name for other in pairs):
            raise BadRequest(f"{where}: the name is taken by an earlier pair: give it another.")
        pairs.append(_with_what_is_shipped(pair))
    return tuple(pairs)


def load_lessons(folder: Path = PRESETS_DIR / "lessons") -> tuple[Preset, ...]:
    """All lessons in the order they are shown in, without those whose drafter is not shipped with this copy.

    Raises:
        BadRequest: as `load_pairs` does.
    """
    lessons = []
    for path in sorted(folder.glob("*.toml")):
        where = f"{folder.name}/{path.name}"
        entry = _build(_LessonFile, _read_toml(path), where)
        lesson = Preset(
            name=path.stem,
            title=entry.title,
            pair=find_pair(entry.pair),
            lesson=entry.lesson,
            prompt=entry.prompt,
            order=entry.order,
            raw=entry.raw,
            draft_precision=entry.draft_precision,
            settings=entry.settings,
        )
        _check_keys(entry.settings, [setting.name for setting in fields(RunSettings)], f"{where}, [settings]")
        try:
            lesson.run_settings()
        except BadRequest as error:
            raise BadRequest(f"{where}, [settings]: {error}") from None
        if entry.draft_precision not in DRAFT_PRECISIONS:
            raise BadRequest(
                f"{where}: draft_precision is {entry.draft_precision!r}: choose one of {', '.join(DRAFT_PRECISIONS)}."
            )
        if _has_its_draft(lesson):
            lessons.append(lesson)
    return tuple(sorted(lessons, key=lambda lesson: (lesson.order, lesson.name)))


def find_pair(name: str) -> Pair:
    """The pair called `name`; raises BadRequest with the choices."""
    return _find(name, load_pairs(), "pair")


def find_preset(name: str) -> Preset:
    """The lesson called `name`, or the pair of that name with its best drafter; raises BadRequest with the choices."""
    bare_pairs = (
        Preset(pair.name, pair.title, pair, lesson=pair.note, settings=pair.best_settings) for pair in load_pairs()
    )
    return _find(name, (*load_lessons(), *bare_pairs), "preset")


def _has_its_draft(lesson: Preset) -> bool:
    drafter = lesson.run_settings().drafter
    return drafter in lesson.pair.drafters or not (lesson.pair.is_embedded and drafter in DRAFT_KINDS)


def _with_what_is_shipped(pair: Pair) -> Pair:
    """The embedded pair without the drafters whose draft is missing; any other as it is."""
    if not pair.is_embedded:
        return pair
    return replace(
        pair, drafters=tuple(kind for kind in pair.drafters if kind not in DRAFT_KINDS or shipped_names(kind))
    )


def _find(name: str, choices: Iterable[Any], what: str) -> Any:
    by_name = {choice.name: choice for choice in choices}
    if name not in by_name:
        raise BadRequest(
            f"There is no {what} {name!r}{_did_you_mean(name, by_name)}: choose one of {', '.join(by_name)}."
        )
    return by_name[name]


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"{path} cannot be read ({error.strerror}): restore it from the repository.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} is not TOML ({error}): correct it.") from error


def _build(kind: type, entry: dict[str, Any], where: str) -> Any:
    """An instance of the dataclass `kind` from a TOML table whose keys are its fields."""
    _check_keys(entry, [known.name for known in fields(kind)], where)
    for known in fields(kind):
        if known.name not in entry and known.default is MISSING and known.default_factory is MISSING:
            raise BadRequest(f"{where}: the key {known.name!r} is missing: add it.")
    hints = get_type_hints(kind)
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    for key, value in values.items():
        expected = _plain_types(hints[key])
        if type(value) not in expected:
            names = " or ".join(kind.__name__ for kind in expected)
            raise BadRequest(f"{where}: {key} is {value!r}: give a value of type {names}.")
    return kind(**values)


def _plain_types(hint: Any) -> tuple[type, ...]:
    """The classes a TOML value may have: `str | None` -> (str,), `tuple[str, ...]` -> (tuple,)."""
    options = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return tuple(getattr(option, "__origin__", option) for option in options if option is not type(None))


def _check_keys(table: dict[str, Any], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in table:
        if key not in known:
            raise BadRequest(
                f"{where}: unknown key {key!r}{_did_you_mean(key, known)}: the keys are {', '.join(known)}."
            )


def _did_you_mean(word: str, choices: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""
