"""One run from prompt to finished trace: the door that the command line, the page and the API use.

(Skeleton with the agreed signatures; being filled in.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specviz.config import RunSettings

if TYPE_CHECKING:
    from specviz.events import Event


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run, from its last events: text, token_ids, reason, counts, metrics, seconds, identity."""

    text: str
    token_ids: list[int]
    reason: str
    counts: dict[str, Any]
    metrics: dict[str, Any]
    seconds: dict[str, float]
    identity: dict[str, Any] | None
    error: str | None = None


class Run:
    """One generation, iterable once; events come as they happen. `cancel()` may come from any thread."""

    def __init__(
        self, pair, prompt: str, settings: RunSettings, *, raw: bool = False, check: bool = False, live_drafts: bool = False
    ): ...

    def __iter__(self) -> Iterator[Event]: ...

    def cancel(self) -> None: ...

    @property
    def result(self) -> RunResult: ...
