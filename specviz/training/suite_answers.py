"""The target's greedy answers to the prompts of a suite, to measure a draft along; nothing is trained on them.

Along the text of plain decoding every position is asked about. In a run with a draft, position 1 is only where a round
begins, which is just behind a token that the draft did not foresee.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from specviz.engine.lean_model import LeanModel
from specviz.engine.vocabulary import Vocabulary
from specviz.lab.prompts import prepare
from specviz.lab.suite import SuitePrompt
from specviz.training.corpus import Corpus, Shard
from specviz.training.examples import Examples
from specviz.training.states import StateStore, compute_states

MAX_PROMPT_TOKENS = 512
MAX_NEW_TOKENS = 128


def answered_suite(
    model: LeanModel,
    vocabulary: Vocabulary,
    suite: Sequence[SuitePrompt],
    layers: tuple[int, ...],
    folder: Path,
    *,
    ends: frozenset[int],
    max_prompt_tokens: int = MAX_PROMPT_TOKENS,
    max_new_tokens: int = MAX_NEW_TOKENS,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Examples:
    """The answers with the target's states; what an earlier call in `folder` has answered and computed is read there.

    Args:
        layers: whose states are wanted, the last one too.
        ends: tokens that end an answer.

    Raises:
        BadRequest: a prompt cannot be made to fit.
    """
    prompts = prepare(
        suite,
        vocabulary,
        max_prompt_tokens=max_prompt_tokens,
        max_new_tokens=max_new_tokens,
        context=model.max_positions,
    )
    asked = repr([prompt.token_ids for prompt in prompts] + [max_new_tokens])
    place = folder / f"suite-{zlib.crc32(asked.encode()):08x}"
    corpus, store = Corpus(place), StateStore(place / "states", layers)
    if not corpus.numbers():
        answered = []
        for done, prompt in enumerate(prompts):
            report(done, len(prompts))
            answer = greedy_answer(model, prompt.token_ids, ends, max_new_tokens)
            answered.append((np.array([*prompt.token_ids, *answer]), len(prompt.token_ids)))
        corpus.write(Shard.of(0, answered), model.vocab_size)
    shard = corpus.read(0)
    if not store.has(shard):
        store.write(shard.number, compute_states(model, shard, layers, header_length=1))
    return Examples(corpus, store, held_out=None)


def greedy_answer(model: LeanModel, prompt_ids: Sequence[int], ends: frozenset[int], max_new_tokens: int) -> list[int]:
    """Plain greedy decoding, with the token that ended it."""
    cache, answer, fed = model.new_cache(), [], list(prompt_ids)
    while len(answer) < max_new_tokens:
        answer.append(int(model.forward(fed, cache, num_logits=1).logits[-1].argmax()))
        if answer[-1] in ends:
            break
        fed = answer[-1:]
    return answer
