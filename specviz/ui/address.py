"""The page's address as state: which controls a link sets, and the scripts that read and write it.

Settings stand in the query, the prompt and the system message in the fragment, which no server sees.
What a link says is checked like everything else: what cannot be used is left out, with a sentence about it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specviz.errors import BadRequest
from specviz.presets import Preset
from specviz.trace.visible_text import shortened
from specviz.ui.bundle import address_script
from specviz.ui.run_request import PLAIN_SETTINGS, control_values, with_changes

FLAGS = ("raw", "check", "k_auto", "lookup_first")
TEXTS = ("pair", "prompt", "system", "drafter", "draft_precision")
IN_ADDRESS = (*TEXTS, *FLAGS, "k", *(name for name in PLAIN_SETTINGS if name not in (*TEXTS, *FLAGS)))
TABS = ("watch", "early-exit")
KNOWN = ("tab", "lesson", "recording", "round", *IN_ADDRESS)
FLAG_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
MOST_SHOWN, LONGEST_SHOWN = 5, 40  # unknown names, and characters of a value
MAX_ADDRESS_CHARS = 100_000

READ_ADDRESS = f"""() => {{ {address_script()}
const read = SpecViz.address.read(location);
return [Object.keys(read).length ? JSON.stringify(read) : ""]; }}"""

FORGET_RECORDING = (
    f"() => {{ {address_script()}\nSpecViz.address.write({{ recording: null, round: null }}); return []; }}"
)


def keep_lesson(prompts: Mapping[str, str]) -> str:
    """The script that looks at (prompt, lesson, its sentence): a lesson stays as long as the prompt is its own.

    Args:
        prompts: the prompt of each lesson.
    """
    own = f"({json.dumps(prompts)})[lesson] === prompt"
    return f'(prompt, lesson, sentence) => ({own} ? [lesson, sentence] : [null, ""])'


def write_address(
    name: str, forget: Iterable[str] = (), when: Iterable[str] = (), bounds: tuple[float, float] | None = None
) -> str:
    """The script that notes a control's new value in the address, and takes the names in `forget` out of it.

    Args:
        when: the values that do so; () for all.
        bounds: the least and the greatest value of a control that turns others into these.
    """
    nothing = json.dumps(dict.fromkeys(forget))
    if when:
        nothing = f"({json.dumps(list(when))}.includes(value) ? {nothing} : {{}})"
    value = f"Math.min({bounds[1]}, Math.max({bounds[0]}, value))" if bounds else "value"
    return (
        f"(value) => {{ {address_script()}\nSpecViz.address.write({{ ...{nothing}, {json.dumps(name)}: {value} }}); }}"
    )


@dataclass(frozen=True, slots=True)
class Linked:
    """What an address asks for.

    Attributes:
        values: what the controls should show.
        lesson, recording: the ones it names; None without one.
        problems: a sentence for each thing in it that cannot be used, and was left out.
        refused: the names of these things.
    """

    values: dict[str, Any]
    lesson: str | None = None
    recording: str | None = None
    problems: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def read_link(
    text: str,
    lessons: Mapping[str, Preset],
    recordings: Mapping[str, dict[str, Any]],
    defaults: dict[str, Any],
    num_rounds: Mapping[str, int] | None = None,
) -> Linked:
    """What an address asks for. A recording or a lesson is the ground, and the settings beside it go on top.

    Args:
        text: JSON object of name -> text, as the script reads it from the address.
        recordings: by name, what the controls show for each.
        defaults: the controls' values without an address.
        num_rounds: by recording, first the one that is shown without a link; None leaves the round unchecked.
    """
    try:
        given = _parsed(text)
    except BadRequest as error:
        return Linked(dict(defaults), problems=(str(error),))
    problems: dict[str, str] = {}
    lesson, recording, _ = (
        _named(what, given, choices, problems)
        for what, choices in (("lesson", lessons), ("recording", recordings), ("tab", TABS))
    )
    if num_rounds:
        _check_round(given, num_rounds[recording or next(iter(num_rounds))], problems)
    values = dict(defaults)
    if lesson is not None:
        values = control_values(lessons[lesson], lessons[lesson].pair)
    if recording is not None:
        values |= recordings[recording]
    changes = {}
    for name in (name for name in IN_ADDRESS if name in given):
        try:
            changes[name] = _value(name, given[name])
        except BadRequest as error:
            problems[name] = str(error)
    values, refused = with_changes(values, changes)
    if "k_auto" not in changes and changes.get("k") == values["k"]:
        values = {**values, "k_auto": False}  # who names a number wants that number
    problems |= refused | _unknown(given)
    return Linked(values, lesson, recording, tuple(dict.fromkeys(problems.values())), tuple(problems))


def _unknown(given: Mapping[str, str]) -> dict[str, str]:
    """One sentence about all names that mean nothing here; Gradio's own begin with two underscores."""
    unknown = [name for name in given if name not in KNOWN and not name.startswith("__")]
    shown = [f"{shortened(name, LONGEST_SHOWN)}={_shown(given[name])}" for name in unknown[:MOST_SHOWN]]
    more = f" and {len(unknown) - MOST_SHOWN} more" if len(unknown) > MOST_SHOWN else ""
    sentence = f"The address of this page says {', '.join(shown)}{more}: it knows only {', '.join(KNOWN)}."
    return dict.fromkeys(unknown, sentence)


def _check_round(given: Mapping[str, str], last: int, problems: dict[str, str]) -> None:
    text = given.get("round", "1")
    if not (text.isdecimal() and 1 <= int(text[:9]) <= last):
        problems["round"] = (
            f"The address of this page says round={_shown(text)}: give a whole number from 1 to {last}, "
            "the rounds of the recording."
        )


def _shown(text: str) -> str:
    return repr(shortened(text, LONGEST_SHOWN))


def _named(what: str, given: Mapping[str, str], choices: Collection[str], problems: dict[str, str]) -> str | None:
    name = given.get(what) or None
    if name is None or name in choices:
        return name
    problems[what] = f"The address of this page names the {what} {_shown(name)}: choose one of {', '.join(choices)}."
    return None


def _parsed(text: str) -> dict[str, str]:
    if not isinstance(text, str) or len(text) > MAX_ADDRESS_CHARS:
        raise BadRequest("The address of this page is too long to be read: shorten the prompt in it.")
    try:
        given = json.loads(text or "{}")
    except ValueError:
        given = {}
    return (
        {str(name): str(value) for name, value in given.items() if value is not None} if isinstance(given, dict) else {}
    )


def _value(name: str, text: str) -> Any:
    if name in TEXTS:
        return text
    if name in FLAGS:
        if text.lower() in FLAG_WORDS:
            return FLAG_WORDS[text.lower()]
        raise BadRequest(f"The address of this page says {name}={_shown(text)}: give true or false there.")
    try:
        return float(text) if "." in text or "e" in text.lower() else int(text)
    except ValueError:
        raise BadRequest(f"The address of this page says {name}={_shown(text)}: give a number there.") from None
