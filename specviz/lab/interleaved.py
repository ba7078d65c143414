"""Many engines, many prompts: each prompt is given to every engine once before the next, in an order that rotates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from specviz.lab.worker_process import Worker, WorkerFailed

WARM_UP_AT_MOST = {"max_new_tokens": 16, "repetitions": 1}


@dataclass(slots=True)
class Answers:
    """What came of it.

    Attributes:
        by_worker: name -> for each prompt its answers, one a repetition; only workers that went through.
        facts: name -> what it runs on.
        reasons: name -> why there are no answers.
    """

    by_worker: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def give_up(self, name: str, why: str, workers: dict[str, Worker]) -> None:
        """Forget what a worker answered, and end it."""
        self.reasons[name] = why
        self.by_worker.pop(name, None)
        if name in workers:
            workers.pop(name).close()


def ask_interleaved(
    starters: Mapping[str, Callable[[], Worker]],
    requests: Mapping[str, Sequence[dict[str, Any]]],
    *,
    repeat: int = 1,
    notify: Callable[[str], None] = lambda text: None,
) -> Answers:
    """Start every worker, one after the other, warm each up apart, then ask them all in turn.

    A worker that fails loses its place, with its reason, and the others go on. All are ended at the end,
    whatever happens.

    Args:
        starters: name -> what starts that worker; raises WorkerFailed.
        requests: name -> one request a prompt, as many for every name.
    """
    answers, workers = Answers(), dict[str, Worker]()
    with ExitStack() as stack:
        for name, start in starters.items():
            notify(f"Starting {name}")
            try:
                workers[name] = start()
                stack.callback(workers[name].close)
                workers[name].ask(warm_up(requests[name][0]))
            except WorkerFailed as failure:
                answers.give_up(name, str(failure), workers)
            else:
                answers.facts[name] = workers[name].facts
                answers.by_worker[name] = [[] for _ in requests[name]]
        num_prompts = len(next(iter(requests.values()), ()))
        for turn in range(repeat * num_prompts):
            prompt = turn % num_prompts
            notify(f"Prompt {turn + 1} of {repeat * num_prompts}")
            for name in rotated(list(workers), turn):
                try:
                    answers.by_worker[name][prompt].append(workers[name].ask(requests[name][prompt]))
                except WorkerFailed as failure:
                    answers.give_up(name, f"On prompt {prompt + 1}: {failure}", workers)
    return answers


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """The names, beginning with another one each turn.

    >>> rotated(["a", "b", "c"], 4)
    ['b', 'c', 'a']
    """
    first = turn % len(names) if names else 0
    return [*names[first:], *names[:first]]


def warm_up(request: dict[str, Any]) -> dict[str, Any]:
    """The first request, made short."""
    return {**request, **{name: min(request[name], most) for name, most in WARM_UP_AT_MOST.items() if name in request}}
