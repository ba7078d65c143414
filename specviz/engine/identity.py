"""The comparison with plain decoding: "identical" is said only of what was checked in this run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from specviz.config import RunSettings
from specviz.engine.logits import LogitsPipeline
from specviz.engine.prefill import feed_in_chunks
from specviz.engine.speculative import decode
from specviz.events import Event, FirstDifference, Identity, RunFinished

if TYPE_CHECKING:
    from specviz.engine.loader import ModelPair

WHY_SAMPLED = "sampled: speculation keeps the distribution of the text, not the text itself"
WHY_SAMPLED_UNVERIFIED = "sampled: each run draws a text of its own, and early exits are verified by nothing"
WHY_STOPPED = "the run was stopped, or made way for another one, before it could be compared"


def compare_with_plain(
    pair: ModelPair,
    prompt_ids: Sequence[int],
    settings: RunSettings,
    eos_token_ids: frozenset[int],
    finished: RunFinished,
    is_cancelled: Callable[[], bool],
    *,
    run_again: Callable[[RunSettings], Iterator[Event]] | None = None,
    may_differ: bool = False,
    draws_as_plain: bool = False,
) -> Identity:
    """Decode plainly with the same model and settings, and compare the ids of `finished` with it.

    A run that its deadline ended is compared as far as it came. Sampled runs are not compared (null
    with the reason), but those that throw plain decoding's own dice; the plain run's speed is measured all the same.
    A run that was watched is slower for it: it recorded more, somebody drew it beside, and it came first. So it is
    made once more, right after plain decoding and under the same conditions, for a ratio of the two.

    Args:
        run_again: makes the run once more with other settings; None where its speed is compared with nothing.
        may_differ: a difference is a result of this run and no fault: then how much is the same is counted too.
        draws_as_plain: each token is drawn as plain decoding draws it, so that a sampled text is the same too.
    """
    num_new = len(finished["token_ids"])
    if num_new == 0 or is_cancelled():
        return {"type": "identity", "against": "plain", "identical": None, "why": WHY_STOPPED}
    length = num_new if finished["reason"] == "deadline" else settings.max_new_tokens
    unwatched = replace(
        settings,
        deadline=None,
        trace_detail="none",
        max_new_tokens=length,
        min_new_tokens=min(settings.min_new_tokens, length),
    )
    plain_settings = replace(unwatched, drafter="none")
    *_, plain = decode(
        pair.target,
        None,
        prompt_ids,
        pair.vocabulary,
        plain_settings,
        eos_token_ids=eos_token_ids,
        is_cancelled=is_cancelled,
    )
    if plain["reason"] == "cancelled":
        return {"type": "identity", "against": "plain", "identical": None, "why": WHY_STOPPED}
    event: Identity = {
        "type": "identity",
        "against": "plain",
        "identical": None,
        "plain_seconds": plain["seconds"],
        "plain_tokens": len(plain["token_ids"]),
        "plain_tokens_per_second": plain["metrics"]["tokens_per_second"],
    }
    if run_again is not None:
        *_, again = run_again(unwatched)
        if again["reason"] != "cancelled":
            event["again_tokens_per_second"] = again["metrics"]["tokens_per_second"]
    if not (settings.is_greedy or draws_as_plain):
        return {**event, "why": WHY_SAMPLED_UNVERIFIED if may_differ else WHY_SAMPLED}
    event["identical"] = plain["token_ids"] == finished["token_ids"]
    if may_differ:
        event |= _what_is_the_same(plain["token_ids"], finished["token_ids"])
    if not event["identical"]:
        event["first_difference"] = _first_difference(
            pair, prompt_ids, plain_settings, eos_token_ids, plain["token_ids"], finished["token_ids"]
        )
    return event


def _what_is_the_same(plain_ids: list[int], other_ids: list[int]) -> dict[str, int | float]:
    """`common_prefix`: tokens up to the first difference; `same_share`: of the run's tokens, those that stand at the same
    place of the plain run."""
    num_same = sum(a == b for a, b in zip(plain_ids, other_ids, strict=False))
    return {"common_prefix": _common_prefix(plain_ids, other_ids), "same_share": num_same / len(other_ids)}


def _common_prefix(plain_ids: list[int], other_ids: list[int]) -> int:
    pairs = zip(plain_ids, other_ids, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(plain_ids), len(other_ids)))


def _first_difference(
    pair: ModelPair,
    prompt_ids: Sequence[int],
    settings: RunSettings,
    eos_token_ids: frozenset[int],
    plain_ids: list[int],
    other_ids: list[int],
) -> FirstDifference:
    """Where the two part, and how close the target's two best logits were there (one fresh pass)."""
    position = _common_prefix(plain_ids, other_ids)
    context = [*prompt_ids, *plain_ids[:position]]
    cache = pair.target.new_cache()
    feed_in_chunks(pair.target, context[:-1], cache, lambda: False)
    logits = pair.target.forward(context[-1:], cache, num_logits=1).logits
    vocab_size = min(pair.target.vocab_size, pair.vocabulary.size)
    adjusted = LogitsPipeline(settings, vocab_size, len(prompt_ids), eos_token_ids).adjust(logits, context)
    best, second = adjusted[0].topk(2).values.tolist()
    ids = [sequence[position] if position < len(sequence) else None for sequence in (plain_ids, other_ids)]
    return {
        "position": position,
        "ids": ids,
        "texts": [None if token_id is None else pair.vocabulary.lone_text(token_id) for token_id in ids],
        "top2_gap": best - second if math.isfinite(second) else None,
        "dtype": str(pair.target.dtype).removeprefix("torch."),
    }
