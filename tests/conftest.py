"""Fixtures that every test may use."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, settings

# Tiny tensors: a second thread only costs, and one thread makes the sums come out the same everywhere.
torch.set_num_threads(1)

# The same examples in every run, so that a failure can be repeated.
settings.register_profile("specviz", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("specviz")
