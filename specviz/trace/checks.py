"""Checks of JSON values: small functions that pass in silence or raise `Malformed`.

They are the cells of the table in `shapes.py`. Nothing here knows what a trace is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], None]

SHOWN_CHARACTERS = 60


class Malformed(Exception):
    """A value that is not what it should be; gathers the way to it while it travels up.

    Attributes:
        path: keys and indices from the outermost object to the value.
        problem: "is 'maybe', not one of accepted, rejected": what follows the path in a sentence.
    """

    def __init__(self, problem: str, *path: str | int):
        super().__init__(problem)
        self.problem = problem
        self.path = list(path)

    def inside(self, key: str | int) -> Malformed:
        """The same fault, seen from one level further out."""
        self.path.insert(0, key)
        return self

    def sentence_part(self) -> str:
        """`draft[2].status is 'maybe', not one of ...`."""
        steps = [f"[{key}]" if isinstance(key, int) else f".{shown_key(key)}" for key in self.path]
        return f"{''.join(steps).lstrip('.') or 'the event'} {self.problem}"


def shown(value: object, longest: int = SHOWN_CHARACTERS) -> str:
    """A value as an error names it: short, on one line, with nothing a terminal would act upon."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return ascii(value[:longest]) + ("..." if len(value) > longest else "")
    if isinstance(value, int) and value.bit_length() > 128:
        return "a number of very many digits"
    return repr(value)


def shown_key(key: str) -> str:
    """A key as an error names it."""
    return key if re.fullmatch(r"\w{1,60}", key, re.ASCII) else shown(key)


def wrong(value: object, expected: str) -> Malformed:
    """The usual fault: a value, and what it should have been."""
    return Malformed(f"is {shown(value)}, not {expected}")


def whole(low: int, high: int) -> Check:
    """A whole number from low to high (true and false are none)."""

    def check(value: Any) -> None:
        if type(value) is not int or not low <= value <= high:
            raise wrong(value, f"a whole number from {low} to {high}")

    return check


def real(low: float, high: float) -> Check:
    """A finite number from low to high."""

    def check(value: Any) -> None:
        if type(value) not in (float, int) or not low <= value <= high:
            raise wrong(value, f"a number from {low:g} to {high:g}")

    return check


def text(longest: int) -> Check:
    """A string of at most `longest` characters."""

    def check(value: Any) -> None:
        if type(value) is not str:
            raise wrong(value, "a text")
        if len(value) > longest:
            raise Malformed(f"has {len(value)} characters, more than the {longest} allowed")

    return check


def hex_bytes(most: int) -> Check:
    """One to `most` bytes in lower-case hexadecimal."""
    pattern = re.compile(r"(?:[0-9a-f]{2})+")

    def check(value: Any) -> None:
        if type(value) is not str or len(value) > 2 * most or not pattern.fullmatch(value):
            raise wrong(value, "bytes in lower-case hexadecimal")

    return check


def one_of(*choices: str | int) -> Check:
    """Exactly one of the choices, of the same type (true is not 1)."""
    listed = ", ".join(map(str, choices))

    def check(value: Any) -> None:
        if type(value) not in (str, int) or value not in choices:
            raise wrong(value, f"one of {listed}" if len(choices) > 1 else listed)

    return check


def flag(value: Any) -> None:
    """true or false."""
    if type(value) is not bool:
        raise wrong(value, "true or false")


def nullable(check_value: Check) -> Check:
    """null, or what the other check wants."""

    def check(value: Any) -> None:
        if value is not None:
            check_value(value)

    return check


def list_of(check_item: Check, longest: int) -> Check:
    """A list of at most `longest` items."""

    def check(value: Any) -> None:
        if type(value) is not list:
            raise wrong(value, "a list")
        if len(value) > longest:
            raise Malformed(f"has {len(value)} entries, more than the {longest} allowed")
        for index, item in enumerate(value):
            try:
                check_item(item)
            except Malformed as fault:
                raise fault.inside(index) from None

    return check


def tuple_of(*check_items: Check) -> Check:
    """A list of exactly these items."""

    def check(value: Any) -> None:
        if type(value) is not list or len(value) != len(check_items):
            raise wrong(value, f"a list of {len(check_items)}")
        for index, item in enumerate(value):
            try:
                check_items[index](item)
            except Malformed as fault:
                raise fault.inside(index) from None

    return check


def mapping_of(check_key: Check, check_item: Check, most: int) -> Check:
    """An object with any keys that pass, and values of one kind."""

    def check(value: Any) -> None:
        if type(value) is not dict:
            raise wrong(value, "an object")
        if len(value) > most:
            raise Malformed(f"has {len(value)} fields, more than the {most} allowed")
        for key, item in value.items():
            try:
                check_key(key)
                check_item(item)
            except Malformed as fault:
                raise fault.inside(key) from None

    return check


def record(required: Mapping[str, Check], optional: Mapping[str, Check], unknown: Check) -> Check:
    """An object with these fields; fields that nobody knows are let through if `unknown` bears them."""
    known = {**required, **optional}

    def check(value: Any) -> None:
        if type(value) is not dict:
            raise wrong(value, "an object")
        for name in required:
            if name not in value:
                raise Malformed("is missing", name)
        for name, item in value.items():
            try:
                known.get(name, unknown)(item)
            except Malformed as fault:
                raise fault.inside(name) from None

    return check


def anything(longest_text: int, most_items: int, depth: int) -> Check:
    """Any JSON value within bounds: finite numbers, short texts, small lists, nested `depth` deep at most."""
    if depth == 0:
        return _nothing_nested
    check_text = text(longest_text)
    check_number = real(-1e308, 1e308)
    inner = anything(longest_text, most_items, depth - 1)
    check_list = list_of(inner, most_items)
    check_mapping = mapping_of(text(200), inner, most_items)

    def check(value: Any) -> None:
        kind = type(value)
        if kind is str:
            check_text(value)
        elif kind is list:
            check_list(value)
        elif kind is dict:
            check_mapping(value)
        elif kind is int or kind is float:
            check_number(value)

    return check


def _nothing_nested(value: Any) -> None:
    if isinstance(value, (list, dict)):
        raise Malformed("is nested too deeply")
