"""A worker process: `python -m specviz.lab.worker`. JSON lines in, JSON lines out, asleep in between.

    -> {"job": "plain", "setup": {...}}      <- {"ready": {facts}}   or {"failed": sentence}
    -> {request}                             <- {"answer": {...}}    or {"failed": sentence}

It ends when its input does, also when its parent was killed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import IO, Any, Protocol

from specviz.errors import SpecVizError
from specviz.lab.engines import OWN_ENGINES, TRANSFORMERS_ENGINES, Setup

COSTS_JOB = "costs"
PERPLEXITY_JOBS = ("perplexity_ours", "perplexity_hf", "perplexity_reference")


class Job(Protocol):
    """What a worker does all its life; `facts` are JSON-plain."""

    facts: dict[str, Any]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]: ...


def make_job(name: str, setup: Setup) -> Job:
    """The job of that name, with its models loaded."""
    if name in OWN_ENGINES:
        from specviz.lab.own_engine import OwnEngine

        return OwnEngine(name, setup)
    if name in TRANSFORMERS_ENGINES:
        from specviz.lab.transformers_engine import TransformersEngine

        return TransformersEngine(name, setup)
    if name == "llama_cpp_plain":
        from specviz.lab.llama_cpp_engine import LlamaCppEngine

        return LlamaCppEngine(setup)
    if name == "vllm":
        from specviz.lab.vllm_engine import VllmEngine

        return VllmEngine(setup)
    if name == COSTS_JOB:
        from specviz.lab.cost_meter import CostMeter

        return CostMeter(setup)
    from specviz.lab.perplexity import PerplexityMeter

    return PerplexityMeter(name, setup)


def serve(requests: IO[str], answers: IO[str], make: Callable[[str, Setup], Job] = make_job) -> None:
    """Make the job of the first line, then answer every further line."""

    def say(**message: Any) -> None:
        answers.write(json.dumps(message, allow_nan=False) + "\n")
        answers.flush()

    first = json.loads(requests.readline() or "null")
    if first is None:
        return
    try:
        job = make(first["job"], Setup(**first["setup"]))
        say(ready=job.facts)
        while line := requests.readline():
            say(answer=job.answer(json.loads(line)))
    except BrokenPipeError:
        raise
    except Exception as error:
        say(failed=_sentence(error))


def _sentence(error: Exception) -> str:
    if isinstance(error, SpecVizError):
        return str(error)
    first_line = (str(error).strip().splitlines() or [""])[0][:300]
    return f"It broke off ({type(error).__name__}: {first_line})."


def main() -> None:
    """Serve on standard input and output; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        serve(sys.stdin, answers)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)  # nobody listens any more


if __name__ == "__main__":
    main()
