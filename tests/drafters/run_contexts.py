"""A `RunContext` for tests that drive a draft session by hand."""

from __future__ import annotations

from typing import Any

from specviz.config import RunSettings
from specviz.drafters.base import DraftedToken, DraftSession, RunContext
from specviz.engine.dice import Dice
from specviz.engine.logits import LogitsPipeline
from tests.table_model import TableModel


def run_context(
    target: TableModel,
    *,
    num_prompt_tokens: int = 1,
    eos_token_ids: tuple[int, ...] = (),
    confidence: float | None = None,
    wants_model_probs: bool = True,
    **settings,
) -> RunContext:
    pipeline = LogitsPipeline(RunSettings(**settings), target.vocab_size, num_prompt_tokens, frozenset(eos_token_ids))
    return RunContext(
        target_cache=target.new_cache(),
        cache_for=lambda model: model.new_cache(),
        pipeline=pipeline,
        dice=Dice(0),
        eos_token_ids=frozenset(eos_token_ids),
        confidence=confidence,
        wants_model_probs=wants_model_probs,
        should_stop=lambda: False,
    )


def propose(
    session: DraftSession, committed_ids: list[int], num_draft_tokens: int, round_index: int = 1
) -> tuple[list[DraftedToken], Any]:
    """The whole proposal of a round, and why it is shorter than asked."""
    proposal = session.propose(committed_ids, num_draft_tokens, round_index)
    drafted = []
    while True:
        try:
            drafted.append(next(proposal))
        except StopIteration as end:
            return drafted, end.value


def ids_of(drafted: list[DraftedToken]) -> list[int]:
    return [token.token_id for token in drafted]
