"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from specviz.cache import CACHE_VARIABLE
from specviz.commands.doctor import find_chromium
from specviz.engine.embedded import embedded_model_dir
from specviz.errors import SpecVizError
from specviz.progress import no_progress

# Tiny tensors: a second thread only costs, and one thread makes the sums come out the same everywhere.
torch.set_num_threads(1)

# The same examples in every run, so that a failure can be repeated.
settings.register_profile("specviz", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("specviz")


@pytest.fixture(scope="session")
def embedded_dir() -> Path:
    """The embedded model's folder in the user's own cache (fetched there once); for tests marked `embedded`."""
    try:
        return embedded_model_dir(no_progress)
    except SpecVizError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"The embedded model cannot be had: {error}")


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The system's Chromium; for tests marked `browser`."""
    path = find_chromium()
    if path is None and os.environ.get("CI") == "true":
        pytest.fail("Chromium is missing: `make chromium` brings it.")
    return path or pytest.skip("Chromium is missing: `apt-get install chromium` as root brings it.")


@pytest.fixture(autouse=True)
def users_cache_untouched(request, tmp_path_factory, monkeypatch) -> None:
    """No test writes into the user's cache, or downloads, by accident; those marked `embedded` see the real one."""
    if not request.node.get_closest_marker("embedded"):
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path_factory.getbasetemp() / "specviz-cache"))
