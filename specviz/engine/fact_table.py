"""What a folder of trained weights says of itself, value by value: each checked as it is read, and refused by name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specviz.errors import BadRequest

LARGEST_SIZE = 2**24


@dataclass(frozen=True, slots=True)
class FactTable:
    """A JSON object whose values are checked as they are read.

    Attributes:
        file: that it stands in.
        remedy: what to do about a value that cannot be, as the end of a sentence.
        prefix: of its keys within the file: "" or "target.".
    """

    file: Path
    remedy: str
    values: dict[str, Any]
    prefix: str = ""

    def refuse(self, key: str, expected: str) -> None:
        value = self.values.get(key)
        found = f"is {str(value)[:80]!r}" if key in self.values else "is missing"
        raise BadRequest(f"{self.file}: {self.prefix}{key} {found}, but it has to be {expected}: {self.remedy}.")

    def table(self, key: str) -> FactTable:
        if not isinstance(value := self.values.get(key), dict):
            self.refuse(key, "an object")
        return FactTable(self.file, self.remedy, value, f"{self.prefix}{key}.")

    def text(self, key: str) -> str:
        if not isinstance(value := self.values.get(key), str) or not value:
            self.refuse(key, "a text")
        return value

    def whole(self, key: str) -> int:
        if type(value := self.values.get(key)) is not int or not 1 <= value <= LARGEST_SIZE:
            self.refuse(key, f"a whole number from 1 to {LARGEST_SIZE}")
        return value

    def positive(self, key: str) -> float:
        value = self.values.get(key)
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            self.refuse(key, "a number above 0")
        return float(value)

    def one_of(self, key: str, choices: tuple[Any, ...]) -> Any:
        value = self.values.get(key)
        if type(value) is not type(choices[0]) or value not in choices:
            self.refuse(key, f"one of {', '.join(map(str, choices))}")
        return value

    def layers(self, key: str) -> tuple[int, ...]:
        value = self.values.get(key)
        is_list = isinstance(value, list) and bool(value) and all(type(layer) is int for layer in value)
        if not is_list or not all(0 <= layer <= LARGEST_SIZE for layer in value) or len(set(value)) < len(value):
            self.refuse(key, "a list of different layers of the target")
        return tuple(value)
