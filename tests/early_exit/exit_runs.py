"""Short ways to run early-exit decoding in a test."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from specviz.config import RunSettings
from specviz.early_exit.exit_run import ExitRun
from specviz.early_exit.exit_settings import ExitSettings
from specviz.engine.hf_model import TransformersModel
from specviz.engine.language_model import LanguageModel
from specviz.engine.loader import ModelPair
from specviz.runs import Run
from tests.engine.lean_models import float32_of, int8_of
from tests.engine.runs import byte_vocabulary
from tests.tiny_models import build_model

NUM_LAYERS = 6
PATHS = ("general", "lean float32", "lean int8")


@cache
def module():
    """A Llama of six layers, deep enough to leave at several."""
    return build_model("llama", num_hidden_layers=NUM_LAYERS)


@cache
def target_of(path: str) -> LanguageModel:
    if path == "general":
        return TransformersModel(module(), "six layers")
    return float32_of(module()) if path == "lean float32" else int8_of(module())


@cache
def pair_of(path: str) -> ModelPair:
    return ModelPair(target_of(path), byte_vocabulary(), None, frozenset())


def exit_run(
    path: str = "general", prompt: str = "hello", *, kind: str = "timed", check: bool = False, **values: Any
) -> ExitRun:
    """`values` are settings of the run and of the exits (`measure`, `threshold`, ...)."""
    exits = {name: values.pop(name) for name in list(values) if name in ExitSettings.__dataclass_fields__}
    settings = RunSettings(**{"max_new_tokens": 20, "trace_detail": "none"} | values)
    exits.setdefault("exit_layers", (1, 2, 3, 4, 5))
    return ExitRun(pair_of(path), prompt, settings, ExitSettings(**exits), kind=kind, raw=True, check=check)


def plain_ids(path: str, prompt: str = "hello", **settings: Any) -> list[int]:
    values = {"max_new_tokens": 20, "trace_detail": "none", "drafter": "none"} | settings
    run = Run(pair_of(path), prompt, RunSettings(**values), raw=True)
    list(run)
    return run.result.token_ids


def exits_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["exit"] for event in events if event["type"] == "round"]


def rounds_of(run: ExitRun) -> list[dict[str, Any]]:
    return [event for event in run if event["type"] == "round"]


def committed_of(run: ExitRun) -> list[list[int]]:
    return [event["committed"] for event in rounds_of(run)]


def some_states(rows: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, module().config.hidden_size, generator=torch.Generator().manual_seed(seed))
