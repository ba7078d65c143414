"""How a test run shares the cores among its processes."""

from __future__ import annotations

import os


def threads_for_a_whole_model() -> int:
    """2; or 1 where other processes of the test run have the other cores: threads that wait for a core spin, and slow all."""
    return 1 if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1 else 2
