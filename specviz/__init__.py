"""SpecViz: real speculative decoding on real models, made visible.

>>> from specviz import Run, RunSettings, load_pair
>>> run = Run(load_pair(), "Count to ten.", RunSettings(drafter="prompt_lookup"))
>>> for event in run: ...
>>> run.result.text
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "BadRequest",
    "ModelPair",
    "Run",
    "RunFailed",
    "RunResult",
    "RunSettings",
    "SpecVizError",
    "load_pair",
    "read_trace",
]

if TYPE_CHECKING:
    from specviz.config import RunSettings
    from specviz.engine.loader import ModelPair, load_pair
    from specviz.errors import BadRequest, RunFailed, SpecVizError
    from specviz.runs import Run, RunResult
    from specviz.trace.reader import read_trace

_HOMES = {
    "BadRequest": "specviz.errors",
    "ModelPair": "specviz.engine.loader",
    "Run": "specviz.runs",
    "RunFailed": "specviz.errors",
    "RunResult": "specviz.runs",
    "RunSettings": "specviz.config",
    "SpecVizError": "specviz.errors",
    "load_pair": "specviz.engine.loader",
    "read_trace": "specviz.trace.reader",
}


def __getattr__(name: str) -> Any:
    """Names load on first use, so that importing the package loads neither torch nor weights."""
    if name not in _HOMES:
        raise AttributeError(f"module 'specviz' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
