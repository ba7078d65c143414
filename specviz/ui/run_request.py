"""What a visitor asks for: from the values of the controls to a request, and from a lesson to such values.

Control values are a dict by the names in `CONTROL_NAMES`; everything in it is checked, as anybody can
send anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specviz.config import DRAFTER_KINDS, SURE_OF_THEMSELVES, RunSettings
from specviz.engine.draft_facts import DRAFT_KINDS, draft_kind_of
from specviz.errors import BadRequest
from specviz.presets import EMBEDDED_TARGET, Pair, Preset, find_pair
from specviz.ui.conversation import Conversation

OWN_PAIR = "own"

MAX_PROMPT_CHARS = 20_000
MAX_K = 16
MAX_NEW_TOKENS = 512
MAX_SEED = 2**31 - 1
MAX_NGRAM = 16
DEFAULT_PROMPT = "Write a short poem about the sea. Repeat the first line at the end."
DEFAULT_K = 4
WITHOUT_AUTO = tuple(kind for kind in DRAFTER_KINDS if kind not in SURE_OF_THEMSELVES)
DRAFT_PRECISIONS = ("auto", "float32", "bfloat16", "int8", "int4")

# Controls that set the field of `RunSettings` of the same name; an `exit_layer` of 0 is the default one.
PLAIN_SETTINGS = (
    "drafter",
    "lookup_first",
    "temperature",
    "top_k",
    "top_p",
    "max_new_tokens",
    "seed",
    "exit_layer",
    "max_ngram",
    "min_ngram",
)
CONTROL_NAMES = ("pair", "prompt", "system", "raw", "check", "k", "k_auto", "draft_precision", *PLAIN_SETTINGS)
OWN_CONTROL_NAMES = ("own_target", "own_draft")  # only where the operator allows models of the visitor's own


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A pair, a prompt, settings, and whether to compare with plain decoding.

    Attributes:
        draft_precision: of the weights of a draft head or draft model.
        conversation: the turns before this one, and their caches; None outside a conversation.
    """

    pair: Pair
    prompt: str
    settings: RunSettings = field(default_factory=RunSettings)
    raw: bool = False
    check: bool = True
    system: str = ""
    draft_precision: str = "auto"
    conversation: Conversation | None = None


def drafter_kinds(pair: Pair) -> tuple[str, ...]:
    """What may draft for a pair, the best one first, and plain decoding."""
    return (*pair.drafters, "none")


def draft_precisions(pair_name: str, drafter: str) -> tuple[str, ...]:
    """What the weights of a drafter may be; () for a drafter without weights of its own."""
    if drafter == "draft_head":
        return tuple(name for name in DRAFT_PRECISIONS if name not in ("int8", "int4"))
    if drafter == "draft_model":
        is_shipped_in_int8 = pair_name == EMBEDDED_TARGET
        return tuple(name for name in DRAFT_PRECISIONS if not (name == "int8" and is_shipped_in_int8))
    return ()


def own_pair(target: str, draft: str) -> Pair:
    """Two folders of the visitor's own as a pair; raises BadRequest when one is no folder."""
    for what, folder in (("target", target), ("draft", draft)):
        if (what == "target" or folder) and not Path(folder).is_dir():
            raise BadRequest(
                f"The {what} folder is {folder!r}, which is no folder here: give the full path of a model folder."
            )
    drafters = (*((draft_kind_of(draft),) if draft else ()), "prompt_lookup", "early_exit")
    return Pair(
        name=OWN_PAIR, title="Own folders", target=target, target_params=0, draft=draft or None, drafters=drafters
    )


def chosen_pair(values: dict[str, Any], allow_own: bool) -> Pair:
    """The pair that the controls name."""
    if values["pair"] == OWN_PAIR and allow_own:
        return own_pair(*(str(values.get(name) or "").strip() for name in OWN_CONTROL_NAMES))
    return find_pair(values["pair"])


def request_from(values: dict[str, Any], allow_own: bool = False) -> RunRequest:
    """The run that the controls ask for; raises BadRequest with the value, the choices and the remedy."""
    prompt, system = values["prompt"], values["system"]
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadRequest("The prompt is empty: write something for the model to answer.")
    for what, text in (("prompt", prompt), ("system message", system)):
        if not isinstance(text, str) or len(text) > MAX_PROMPT_CHARS:
            raise BadRequest(
                f"The {what} has {len(text or '')} characters: at most {MAX_PROMPT_CHARS} fit here, so shorten it."
            )
    pair = chosen_pair(values, allow_own)
    kinds = drafter_kinds(pair)
    if values["drafter"] not in kinds:
        raise BadRequest(f"The drafter is {values['drafter']!r}: with these models choose one of {', '.join(kinds)}.")
    return RunRequest(
        pair,
        prompt,
        _settings_from(values),
        raw=bool(values["raw"]),
        check=bool(values["check"]),
        system=system.strip(),
        draft_precision=_draft_precision(pair, values["drafter"], values["draft_precision"]),
    )


def _draft_precision(pair: Pair, drafter: str, asked: object) -> str:
    """Of a drafter that has weights of its own; any other leaves it open."""
    choices = draft_precisions(pair.name, drafter) or DRAFT_PRECISIONS
    if asked not in choices:
        raise BadRequest(f"The draft weights are {asked!r}: with this drafter choose one of {', '.join(choices)}.")
    return asked if drafter in DRAFT_KINDS else "auto"


def _settings_from(values: dict[str, Any]) -> RunSettings:
    longest, shortest = (
        whole_number(f"The {which} match", values[name], 1, MAX_NGRAM)
        for which, name in (("longest", "max_ngram"), ("shortest", "min_ngram"))
    )
    if shortest > longest:
        raise BadRequest(
            f"The shortest match is {shortest} and the longest {longest}: make the shortest the smaller one."
        )
    k = whole_number("k", values["k"], 1, MAX_K)
    exit_layer = whole_number("The exit layer", values["exit_layer"], 0, 10_000)
    return RunSettings(
        drafter=values["drafter"],
        lookup_first=values["drafter"] in DRAFT_KINDS and bool(values["lookup_first"]),
        num_draft_tokens="auto" if values["k_auto"] and values["drafter"] in SURE_OF_THEMSELVES else k,
        temperature=values["temperature"],
        top_k=whole_number("top-k", values["top_k"], 0, 10_000),
        top_p=values["top_p"],
        max_new_tokens=whole_number("New tokens", values["max_new_tokens"], 1, MAX_NEW_TOKENS),
        seed=whole_number("The seed", values["seed"], 0, MAX_SEED),
        exit_layer=exit_layer or None,
        max_ngram=longest,
        min_ngram=shortest,
    )


def control_values(lesson: Preset | None, pair: Pair) -> dict[str, Any]:
    """What the controls show for a lesson; without one, the defaults for `pair`."""
    if lesson is None:
        settings = RunSettings(**pair.best_settings, max_new_tokens=64)
        prompt, raw, draft_precision = DEFAULT_PROMPT, False, "auto"
    else:
        settings, pair, prompt, raw = lesson.run_settings(), lesson.pair, lesson.prompt, lesson.raw
        draft_precision = lesson.draft_precision
    return {
        "pair": pair.name,
        "prompt": prompt,
        "system": "",
        "raw": raw,
        "check": True,
        "k": DEFAULT_K if settings.is_adaptive else settings.num_draft_tokens,
        "k_auto": settings.is_adaptive,
        "draft_precision": draft_precision,
        **{name: getattr(settings, name) for name in PLAIN_SETTINGS},
        "exit_layer": settings.exit_layer or 0,
    }


def recorded_values(started: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """What the controls show for a recorded run: its prompt and its settings, as far as this page can run them."""
    prompt, settings = started["prompt"], started["settings"]
    k = settings.get("num_draft_tokens")
    changes = {
        "prompt": prompt["text"],
        "system": prompt.get("system", ""),
        "raw": bool(prompt.get("raw")),
        "check": bool(started.get("check")),
        **{name: settings[name] for name in PLAIN_SETTINGS if name in settings},
        "k_auto": k == "auto",
        **({} if k == "auto" else {"k": k}),
        "draft_precision": _recorded_precision(started["drafter"]),
        "lookup_first": bool(settings.get("lookup_first")),  # older traces do not know it
        "exit_layer": settings.get("exit_layer") or 0,
    }
    return with_changes(values, changes)[0]


def _recorded_precision(drafter: dict[str, Any]) -> str:
    """What to ask for to have the weights of a recorded run: int8 is what is shipped."""
    precision = drafter.get("precision")
    return precision if precision in DRAFT_PRECISIONS and precision != "int8" else "auto"


def with_changes(values: dict[str, Any], changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """`values` with those of the changes that can be run, and a sentence about each of the others, by its name.

    One setting may only hold beside another (the shortest match beside a longer longest one): what was refused is
    tried again as long as that helps.
    """
    waiting, refused = changes, {}
    while waiting:
        refused = {}
        for name, value in waiting.items():
            try:
                values = _with_change(values, name, value)
            except BadRequest as error:
                refused[name] = str(error)
        waiting = {} if len(refused) == len(waiting) else {name: changes[name] for name in refused}
    return values, refused


def _with_change(values: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    changed = {**values, name: value}
    if name == "pair" and changed["drafter"] not in drafter_kinds(find_pair(value)):
        changed["drafter"] = find_pair(value).drafters[0]
    if name == "drafter":
        changed["k_auto"] = changed["drafter"] in SURE_OF_THEMSELVES
    elif name == "k_auto" and value and changed["drafter"] not in SURE_OF_THEMSELVES:
        raise BadRequest(
            f"k auto goes with a drafter that can be sure, and the drafter is {changed['drafter']}: "
            f"give k a number, or choose one of {', '.join(SURE_OF_THEMSELVES)}."
        )
    if name in ("pair", "drafter"):
        choices = draft_precisions(changed["pair"], changed["drafter"])
        if choices and changed["draft_precision"] not in choices:
            changed["draft_precision"] = choices[0]
    request_from(changed)
    return changed


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """A number from a control; raises BadRequest where it is not whole, or out of bounds."""
    is_whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    if not is_whole or not low <= value <= high:
        raise BadRequest(f"{name} is {'empty' if value is None else value}: give a whole number from {low} to {high}.")
    return int(value)
