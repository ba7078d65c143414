"""Workers without a process, models or a clock: every figure of theirs is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specviz.lab.engines import Generation
from specviz.lab.prompts import BenchPrompt
from specviz.lab.worker_process import WorkerFailed


def generation(token_ids=(1, 2, 3, 4), seconds=1.0, rounds=4, drafted=(4,), steps=0) -> Generation:
    """Four tokens in one second, one a round, unless told otherwise."""
    return Generation(
        token_ids=list(token_ids),
        timed_tokens=len(token_ids),
        seconds=seconds,
        first_token_seconds=0.5,
        rounds=rounds,
        draft_steps=steps,
        drafted=list(drafted),
    )


def prompt(index: int, category: str) -> BenchPrompt:
    return BenchPrompt(f"prompt {index}", category, tuple(range(1, 6 + index)), is_cut=False)


class FakeWorker:
    """Answers with `answer(request)`, and remembers what it was asked and whether it was closed."""

    def __init__(self, name: str, answer: Callable[[dict[str, Any]], dict[str, Any]], log: list | None = None) -> None:
        self.facts: dict[str, Any] = {"threads": 1}
        self.name, self.is_closed = name, False
        self._answer, self._log = answer, log if log is not None else []

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert not self.is_closed
        self._log.append((self.name, request))
        return self._answer(request)

    def close(self) -> None:
        self.is_closed = True


def failing(sentence: str) -> Callable[..., dict[str, Any]]:
    def fail(*_: Any) -> dict[str, Any]:
        raise WorkerFailed(sentence)

    return fail


def cost_answer(request: dict[str, Any]) -> dict[str, Any]:
    """A pass over n tokens takes 0.1 * (0.9 + 0.1 n) s, a draft step 0.02 s, the rest 0.005 s (0.002 s when plain)."""
    rounds = {name: [{"steps": 4, "draft": 0.08, "verify": 0.14, "other": 0.005}] * 3 for name in request["drafters"]}
    rounds["none"] = [{"steps": 0, "draft": 0.0, "verify": 0.1, "other": 0.002}] * 3
    passes = [0.1 * (0.9 + 0.1 * n) for n in range(1, 10)]
    return {"repetitions": [{"pass_seconds": passes, "rounds": rounds}] * request["repetitions"]}
