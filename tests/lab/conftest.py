"""Fixtures of the lab's tests."""

from __future__ import annotations

import pytest

from specviz.lab.engines import Setup
from tests.lab.tiny_folders import save_tiny_pair


@pytest.fixture(scope="session")
def tiny_setup(tmp_path_factory) -> Setup:
    """A tiny target and a draft, in float32, in which every way of decoding gives the same ids."""
    folders = save_tiny_pair(tmp_path_factory.mktemp("pair"))
    return Setup(**folders, device="cpu", dtype="float32", hf_dtype="float32", max_length=128)
