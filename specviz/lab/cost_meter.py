"""What a target pass, a draft step and the rest of a round take, in seconds: the worker's side of `costs.py`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from specviz.engine.draft_facts import DRAFT_KINDS
from specviz.errors import BadRequest
from specviz.lab.engines import Setup, own_settings, why_unavailable
from specviz.lab.own_engine import draft_steps, load_own_pair, own_facts

if TYPE_CHECKING:
    from specviz.engine.kv_memory import KVMemory
    from specviz.engine.language_model import LanguageModel

MOST_PASS_TOKENS = 9
PASSES_EACH = 3
NEW_TOKENS = 24


class CostMeter:
    """A few repetitions an answer, so that they can be spread over a whole bench.

    A request has `text` and `token_ids` of the prompt that is measured on, `drafters`, and `repetitions`.
    """

    def __init__(self, setup: Setup) -> None:
        self._pair = load_own_pair(setup, with_draft=any(why_unavailable(kind, setup) is None for kind in DRAFT_KINDS))
        self._setup = setup
        self._memories: dict[str, KVMemory] = {}
        self.facts = own_facts(self._pair)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"repetitions": [self._measure(request) for _ in range(request["repetitions"])]}

    def _measure(self, request: dict[str, Any]) -> dict[str, Any]:
        return {
            "pass_seconds": pass_seconds(self._pair.target, request["token_ids"]),
            "rounds": {drafter: self._rounds(drafter, request["text"]) for drafter in request["drafters"]},
        }

    def _rounds(self, drafter: str, text: str) -> list[dict[str, Any]]:
        """The times of every round of a short run with k fixed; none where this pair cannot draft so.

        The KV of its prompt is kept for the next repetition.
        """
        from specviz.engine.kv_memory import KVMemory
        from specviz.runs import Run

        settings = own_settings(drafter, self._setup, NEW_TOKENS)
        if settings.is_adaptive:
            settings = replace(settings, num_draft_tokens=type(settings)().num_draft_tokens)
        memory = self._memories.setdefault(drafter, KVMemory())
        try:
            events = list(Run(self._pair, text, settings, memory=memory))
        except BadRequest:
            return []
        return [{"steps": draft_steps(event), **event["seconds"]} for event in events if event["type"] == "round"]


def pass_seconds(target: LanguageModel, context_ids: Sequence[int]) -> list[float]:
    """Seconds of a pass over 1, 2, ... `MOST_PASS_TOKENS` tokens after the context, with all their logits.

    The median of a few each, up and down the lengths in turn, so that a slow moment hits all alike.
    """
    from specviz.engine.prefill import feed_in_chunks

    if target.max_positions is not None:
        context_ids = context_ids[: target.max_positions - MOST_PASS_TOKENS]
    cache = target.new_cache()
    feed_in_chunks(target, context_ids[:-1], cache, lambda: False)
    num_context = cache.length
    fed = [context_ids[-1], *(context_ids[i % len(context_ids)] for i in range(MOST_PASS_TOKENS - 1))]
    seconds: dict[int, list[float]] = {length: [] for length in range(1, MOST_PASS_TOKENS + 1)}
    for turn in range(-1, PASSES_EACH):  # the first turn warms up
        for length in seconds if turn % 2 else reversed(seconds):
            start = perf_counter()
            target.forward(fed[:length], cache)
            target.synchronize()
            if turn >= 0:
                seconds[length].append(perf_counter() - start)
            cache.truncate(num_context)
    return [statistics.median(each) for each in seconds.values()]
