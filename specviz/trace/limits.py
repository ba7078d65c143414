"""How large a trace may be: traces are uploaded by strangers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """Bounds on what a reader takes in; beyond one of them it refuses by name.

    Attributes:
        max_bytes: of the whole trace.
        max_line_bytes: of one event.
        max_events: lines, blank ones and unknown types included.
        max_values: JSON values in all; what they take in memory is many times their bytes in the file.
        max_text: characters of a prompt or of a whole text.
        max_token_text: characters of one token.
        max_tokens: ids of a prompt or of a whole text.
        max_draft: drafted tokens of a round.
        max_layers: of a target, where something is told of each.
        max_top: entries of a top list.
        max_unknown_items: entries of a list or object of which nothing is known.
        max_depth: levels of nesting under a field of which nothing is known.
    """

    max_bytes: int = 64 * 2**20
    max_line_bytes: int = 16 * 2**20
    max_events: int = 200_000
    max_values: int = 6_000_000
    max_text: int = 4_000_000
    max_token_text: int = 10_000
    max_tokens: int = 1_000_000
    max_draft: int = 256
    max_layers: int = 1000
    max_top: int = 100
    max_unknown_items: int = 10_000
    max_depth: int = 12


DEFAULT_LIMITS = TraceLimits()
