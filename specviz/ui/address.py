"""The page's address as state: which controls a link sets, and the scripts that read and write it.

Settings stand in the query, the prompt and the system message in the fragment, which no server sees.
What a link says is checked like everything else: what cannot be used is left out, with a sentence about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specviz.errors import BadRequest
from specviz.presets import Preset
from specviz.ui.bundle import address_script
from specviz.ui.run_request import PLAIN_SETTINGS, control_values, with_changes

FLAGS = ("raw", "check", "k_auto")
TEXTS = ("pair", "prompt", "system", "drafter", "draft_precision")
IN_ADDRESS = (*TEXTS, *FLAGS, "k", *(name for name in PLAIN_SETTINGS if name not in TEXTS))
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


def write_address(name: str, forget: Iterable[str] = ()) -> str:
    """The script that notes a control's new value in the address, and takes the names in `forget` out of it."""
    nothing = json.dumps(dict.fromkeys(forget))
    return f"(value) => {{ {address_script()}\nSpecViz.address.write({{ ...{nothing}, {json.dumps(name)}: value }}); }}"


@dataclass(frozen=True, slots=True)
class Linked:
    """What an address asks for.

    Attributes:
        values: what the controls should show.
        lesson, recording: the ones it names; None without one.
        problems: a sentence for each thing in it that cannot be used, and was left out.
    """

    values: dict[str, Any]
    lesson: str | None = None
    recording: str | None = None
    problems: tuple[str, ...] = ()


def read_link(
    text: str, lessons: Mapping[str, Preset], recordings: Mapping[str, dict[str, Any]], defaults: dict[str, Any]
) -> Linked:
    """What an address asks for. A recording or a lesson is the ground, and the settings beside it go on top.

    Args:
        text: JSON object of name -> text, as the script reads it from the address.
        recordings: by name, what the controls show for each.
        defaults: the controls' values without an address.
    """
    try:
        given = _parsed(text)
    except BadRequest as error:
        return Linked(dict(defaults), problems=(str(error),))
    problems = []
    lesson, recording = (
        _named(what, given, choices, problems) for what, choices in (("lesson", lessons), ("recording", recordings))
    )
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
            problems.append(str(error))
    values, refused = with_changes(values, changes)
    if "k_auto" not in changes and changes.get("k") == values["k"]:
        values = {**values, "k_auto": False}  # who names a number wants that number
    return Linked(values, lesson, recording, (*problems, *refused))


def _named(what: str, given: Mapping[str, str], choices: Mapping[str, Any], problems: list[str]) -> str | None:
    name = given.get(what) or None
    if name is None or name in choices:
        return name
    problems.append(f"The address of this page names the {what} {name!r}: choose one of {', '.join(choices)}.")
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
        return text.lower() in ("true", "1", "yes")
    try:
        return float(text) if "." in text or "e" in text.lower() else int(text)
    except ValueError:
        raise BadRequest(f"The address of this page says {name}={text!r}: give a number there.") from None
