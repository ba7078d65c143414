"""How many cores this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Cores of the machine, less those that the process is kept from."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
