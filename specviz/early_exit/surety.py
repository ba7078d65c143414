"""Confidences as numbers: of all of them, higher means surer.

They are rounded to four digits before they are compared with a threshold, so that what a trace keeps of them decides
the same again.
"""

from __future__ import annotations

import math

DIGITS = 10_000


def surety_of(nats: float, num_tokens: int) -> float:
    """An entropy over so many tokens as a confidence: 1 is sure, 0 is any of them alike."""
    return rounded(1 - nats / math.log(num_tokens)) if num_tokens > 1 else 1.0


def rounded(value: float) -> float:
    """To four digits, halves up as JavaScript does it; what is not a number is not sure."""
    return math.floor(value * DIGITS + 0.5) / DIGITS if math.isfinite(value) else 0.0
