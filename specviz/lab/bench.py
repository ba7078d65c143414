"""A whole bench: every engine on the same prompts, the costs of a round, and what they lead one to expect."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from specviz.engine.draft_facts import DRAFT_KINDS
from specviz.engine.embedded import EMBEDDED_NAME
from specviz.lab.cores import available_cores
from specviz.lab.costs import Costs, fold_costs
from specviz.lab.engines import ENGINES, OWN_ENGINES, Generation, Setup, why_unavailable
from specviz.lab.interleaved import Answers, ask_interleaved
from specviz.lab.perplexity import fold_perplexities
from specviz.lab.prediction import predict
from specviz.lab.prompts import BenchPrompt
from specviz.lab.summary import Record, summarize_engines
from specviz.lab.worker import COSTS_JOB, PERPLEXITY_JOBS
from specviz.lab.worker_process import Worker, WorkerProcess

FEWEST_COST_REPETITIONS = 9
MOST_COST_TURNS = 60  # a hundred more would not make the medians any better

Start = Callable[[str, Setup], Worker]
Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured.

    Attributes:
        engines: names of `ENGINES`, those that were asked for.
        repeat: how often every prompt is given to every engine.
    """

    setup: Setup
    prompts: Sequence[BenchPrompt]
    engines: Sequence[str]
    max_new_tokens: int
    repeat: int = 1


def run_bench(plan: Plan, *, start: Start = WorkerProcess, notify: Notify = lambda text: None) -> dict[str, Any]:
    """`engines`, `reasons`, `costs`, `prediction`, `setting`: JSON-plain, all measured here but the prediction.

    Args:
        start: makes the worker of a job; it raises WorkerFailed if there is none.
        notify: told what is going on, in short sentences.
    """
    reasons = {
        name: why_unavailable(name, plan.setup) if name in plan.engines else "It was not asked for." for name in ENGINES
    }
    engines = [name for name in ENGINES if reasons[name] is None]
    requests = {name: [_request(prompt, plan.max_new_tokens) for prompt in plan.prompts] for name in engines}
    setups = dict.fromkeys(engines, plan.setup)
    if any(name in OWN_ENGINES for name in engines):
        requests[COSTS_JOB] = [_cost_request(plan, engines, turn) for turn in range(len(plan.prompts))]
        runs_draft = any(OWN_ENGINES.get(name) in DRAFT_KINDS for name in engines)
        setups[COSTS_JOB] = plan.setup if runs_draft else replace(plan.setup, draft=None)
    answers = _ask(setups, requests, plan.repeat, start, notify)

    records: dict[str, Record] = {
        name: [[Generation(**answer) for answer in each] for each in answers.by_worker[name]]
        for name in engines
        if name in answers.by_worker
    }
    summaries = summarize_engines(records, [prompt.category for prompt in plan.prompts])
    costs = _costs(plan, answers)
    reasons |= answers.reasons
    return {
        "engines": {
            name: {**summaries[name], **answers.facts[name]} if name in summaries else None for name in ENGINES
        },
        "reasons": {name: why for name, why in reasons.items() if name not in summaries and why is not None},
        "costs": costs.to_dict() if costs else dict.fromkeys(field.name for field in fields(Costs)),
        "prediction": _predictions(records, summaries, costs),
        "setting": _setting(plan),
    }


def run_perplexities(
    texts: Sequence[Sequence[int]], setup: Setup, *, start: Start = WorkerProcess, notify: Notify = lambda text: None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The perplexity of our target, of transformers' in `hf_dtype` and of float32 on the same texts, and reasons
    for those that are null.

    Args:
        texts: token ids of each; of a single token nothing can be said.
    """
    requests = {name: [{"token_ids": list(text)} for text in texts] for name in PERPLEXITY_JOBS}
    answers = _ask(dict.fromkeys(PERPLEXITY_JOBS, setup), requests, 1, start, notify)
    return fold_perplexities(answers.by_worker, len(texts)), answers.reasons


def _ask(
    setups: dict[str, Setup], requests: dict[str, list[dict[str, Any]]], repeat: int, start: Start, notify: Notify
) -> Answers:
    starters = {name: lambda name=name: start(name, setups[name]) for name in requests}
    return ask_interleaved(starters, requests, repeat=repeat, notify=notify)


def _request(prompt: BenchPrompt, max_new_tokens: int) -> dict[str, Any]:
    return {"text": prompt.text, "token_ids": list(prompt.token_ids), "max_new_tokens": max_new_tokens}


def _cost_request(plan: Plan, engines: Sequence[str], turn: int = 0) -> dict[str, Any]:
    """Costs are measured on the prompt that is as long as a run is half-way through, on the median.

    Args:
        turn: number of the prompt that the engines are at; beyond `MOST_COST_TURNS` no costs are measured any more.
    """
    half_way = statistics.median(len(prompt.token_ids) for prompt in plan.prompts) + plan.max_new_tokens / 2
    typical = min(plan.prompts, key=lambda prompt: abs(len(prompt.token_ids) - half_way))
    drafters = dict.fromkeys(OWN_ENGINES[name] for name in engines if name in OWN_ENGINES and name != "plain")
    return {
        "text": typical.text,
        "token_ids": list(typical.token_ids),
        "drafters": ["none", *drafters],
        "repetitions": -(-FEWEST_COST_REPETITIONS // len(plan.prompts)) if turn < MOST_COST_TURNS else 0,
    }


def _costs(plan: Plan, answers: Answers) -> Costs | None:
    if COSTS_JOB not in answers.by_worker:
        return None
    repetitions = [
        repetition for each in answers.by_worker[COSTS_JOB] for answer in each for repetition in answer["repetitions"]
    ]
    return fold_costs(repetitions, len(_cost_request(plan, ())["token_ids"]))


def _predictions(
    records: dict[str, Record], summaries: dict[str, dict[str, Any]], costs: Costs | None
) -> dict[str, dict[str, float | None]]:
    if costs is None:
        return {}
    return {
        name: predict(
            OWN_ENGINES[name], [runs[0] for runs in records[name]], summaries[name]["speedup_over_plain"], costs
        )
        for name in records
        if name in OWN_ENGINES and name != "plain"
    }


def _setting(plan: Plan) -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    from specviz import __version__

    versions = {"specviz": __version__}
    for package in ("torch", "transformers", "llama-cpp-python"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    lengths = [len(prompt.token_ids) for prompt in plan.prompts]
    return {
        **plan.setup.to_dict(),
        "target": EMBEDDED_NAME if plan.setup.is_embedded else plan.setup.target,
        "prompts": len(plan.prompts),
        "prompts_cut": sum(prompt.is_cut for prompt in plan.prompts),
        "median_prompt_tokens": statistics.median(lengths),
        "max_prompt_tokens": max(lengths),
        "max_new_tokens": plan.max_new_tokens,
        "repeat": plan.repeat,
        "cores": available_cores(),
        "versions": versions,
    }
