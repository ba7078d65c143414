"""Step (c) of a distillation: what a draft is worth, on prompts that it was never trained on.

Twice: over the target's own held-out text, all positions at once; and in the real engine, where the clock runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specviz.config import RunSettings
from specviz.engine.loader import load_pair
from specviz.metrics import MetricsFold
from specviz.runs import Run
from specviz.training.corpus import CONTEXT_WITHOUT_CHAT, Corpus
from specviz.training.examples import Examples
from specviz.training.objective import CutHead
from specviz.training.students import Student
from specviz.training.teacher import Teacher
from specviz.training.trainer import measure
from specviz.training.writing import ChatFrame

POSITIONS = 4


def evaluate_on_text(student: Student, head: CutHead, held_out: Examples, tokens_per_batch: int) -> dict[str, Any]:
    """Loss, greedy agreement and overlap by draft position, over the answers of held-out sequences."""
    order = held_out.order(0, 0, tokens_per_batch)
    steps = min(POSITIONS, student.most_steps)
    return {
        "sequences": len(held_out.places),
        "by_position": measure(student, head, held_out.batches(order), steps),
    }


def held_out_prompts(corpus: Corpus, frame: ChatFrame, tokenizer, limit: int) -> list[str]:
    """The prompts of up to `limit` held-out sequences, different from each other."""
    prompts: dict[str, None] = {}
    for shard in corpus.shards():
        for index in range(len(shard)):
            if not shard.is_held_out(index):
                continue
            ids = shard.sequence(index)[len(frame.header) :].tolist()
            end = int(shard.answer_starts[index]) - len(frame.header) - len(frame.middle)
            text = tokenizer.decode(ids[: end if frame.middle else CONTEXT_WITHOUT_CHAT], skip_special_tokens=True)
            if text.strip():
                prompts[text] = None
            if len(prompts) == limit:
                return list(prompts)
    return list(prompts)


def evaluate_in_engine(
    teacher: Teacher,
    draft_folder: Path,
    kind: str,
    prompts: list[str],
    *,
    dtype: str = "auto",
    num_draft_tokens: int | str = "auto",
    max_new_tokens: int = 64,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Greedy runs with the draft and without, prompt by prompt in turn, by the engine's own clock.

    Returns:
        mean_tokens_per_round and acceptance over all rounds, the median of the ratios of tokens per second, and the
        share of the prompts whose answers are identical.
    """
    pair = load_pair(teacher.source, str(draft_folder), dtype=dtype)
    fold, ratios, identical = MetricsFold(), [], 0
    settings = {
        drafter: RunSettings(
            drafter=drafter, num_draft_tokens=num_draft_tokens, max_new_tokens=max_new_tokens, trace_detail="none"
        )
        for drafter in ("none", kind)
    }
    for drafter in settings:  # a first run of each compiles and warms
        list(Run(pair, prompts[0], settings[drafter]))
    for index, prompt in enumerate(prompts):
        results = {}
        for drafter in settings if index % 2 else reversed(settings):
            run = Run(pair, prompt, settings[drafter])
            for event in run:
                if drafter == kind:
                    fold.add(event)
            results[drafter] = run.result
        identical += results["none"].token_ids == results[kind].token_ids
        speeds = [results[drafter].metrics["tokens_per_second"] for drafter in (kind, "none")]
        if all(speeds):
            ratios.append(speeds[0] / speeds[1])
        report(index + 1, len(prompts))
    metrics = fold.metrics()
    return {
        "prompts": len(prompts),
        "max_new_tokens": max_new_tokens,
        "num_draft_tokens": num_draft_tokens,
        "mean_tokens_per_round": metrics["mean_tokens_per_round"],
        "acceptance_by_position": metrics["conditional_acceptance_by_position"],
        "judged_by_position": metrics["judged_by_position"],
        "speedup_over_plain": statistics.median(ratios) if ratios else None,
        "identical": identical / len(prompts) if prompts else None,
    }
