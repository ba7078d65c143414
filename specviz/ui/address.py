"""The page's address as state: which controls a link sets, and the scripts that read and write it.

Settings stand in the query, the prompt and the system message in the fragment, which no server sees.
What a link says is checked like everything else: a value that is not one is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from specviz.errors import BadRequest
from specviz.presets import Preset
from specviz.ui.bundle import address_script
from specviz.ui.run_request import PLAIN_SETTINGS, control_values, drafter_kinds, request_from

FLAGS = ("raw", "check", "k_auto")
TEXTS = ("pair", "prompt", "system", "drafter")
IN_ADDRESS = (*TEXTS, *FLAGS, "k", *(name for name in PLAIN_SETTINGS if name not in TEXTS))
MAX_ADDRESS_CHARS = 100_000

READ_ADDRESS = f"""() => {{ {address_script()}
const read = SpecViz.address.read(location);
return [Object.keys(read).length ? JSON.stringify(read) : ""]; }}"""

FORGET_RECORDING = (
    f"() => {{ {address_script()}\nSpecViz.address.write({{ recording: null, round: null }}); return []; }}"
)


def write_address(name: str, forget: Iterable[str] = ()) -> str:
    """The script that notes a control's new value in the address, and takes the names in `forget` out of it."""
    nothing = json.dumps(dict.fromkeys(forget))
    return f"(value) => {{ {address_script()}\nSpecViz.address.write({{ ...{nothing}, {json.dumps(name)}: value }}); }}"


def values_in(text: str, lessons: dict[str, Preset], defaults: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """What the controls should show for an address, and the lesson that it names (None without one).

    Args:
        text: JSON object of name -> text, as the script reads it from the address.
        defaults: the controls' values without an address.

    Raises:
        BadRequest: the address names settings that cannot be run; says which.
    """
    given = _parsed(text)
    if given.get("lesson", "") not in ("", *lessons):
        raise BadRequest(
            f"The address of this page names the lesson {given['lesson']!r}: choose one of {', '.join(lessons)}."
        )
    lesson = lessons.get(given.get("lesson", ""))
    values = dict(defaults) if lesson is None else control_values(lesson, lesson.pair)
    for name in IN_ADDRESS:
        if name in given:
            values[name] = _value(name, given[name])
    request = request_from(values)
    if values["drafter"] not in drafter_kinds(request.pair):
        values["drafter"] = request.pair.drafters[0]
    return values, lesson.name if lesson else None


def recording_in(text: str) -> str:
    """The name of the recording that an address opens; "" without one."""
    return _parsed(text).get("recording", "")


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
