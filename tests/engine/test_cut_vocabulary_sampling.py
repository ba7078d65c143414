"""A draft that cannot say the likely tokens leaves the target's distribution as it is: of three tokens together.

Where it can say those of its text too, what it can say grows while it is run.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from specviz.drafters import make_drafter
from specviz.engine.draft_loading import open_draft
from specviz.engine.lean_model import LeanModel
from tests.draft_folders import bigram_head, model_draft
from tests.engine.lean_models import float32_of, int8_of
from tests.engine.test_lean_int8 import Rows
from tests.engine.test_sampling_distribution import (
    PROMPT,
    SMALLEST_P_VALUE,
    chi_square_p_value,
    exact_joint,
    sampled_beginnings,
    settings_of,
)
from tests.tiny_models import build_model

pytestmark = pytest.mark.slow

MAKERS = {"draft_head": bigram_head, "draft_model": model_draft}
SETTINGS = {
    "temperature 1": {},
    "all of it": {
        "temperature": 1.3,
        "top_k": 3,
        "top_p": 0.9,
        "repetition_penalty": 1.3,
        "num_draft_tokens": "auto",
        "max_draft_tokens": 3,
        "draft_threshold": 0.45,
    },
    "suppressed": {"suppress_token_ids": (1,), "temperature": 1.5},
}


@cache
def small_module(*, tied: bool = False):
    return build_model("llama", vocab_size=4, seed=1, initializer_range=0.1, tie_word_embeddings=tied)


def target_of(precision: str, *, tied: bool = False) -> LeanModel:
    return (int8_of if precision == "int8" else float32_of)(small_module(tied=tied))


CASES = [*((name, "float32") for name in SETTINGS), ("all of it", "int8")]


@pytest.mark.parametrize(("settings_name", "precision"), CASES)
@pytest.mark.parametrize("kind", MAKERS)
def test_three_tokens_together_have_the_targets_distribution(kind, settings_name, precision):
    target = target_of(precision)
    likeliest = int(Rows(target).logits_after(PROMPT).argmax())
    left = torch.tensor([token_id for token_id in range(4) if token_id != likeliest])
    file = MAKERS[kind](small_module(), left, int8=precision == "int8")
    draft = open_draft(file, target)
    settings = settings_of(drafter=kind, **SETTINGS[settings_name])
    counts = sampled_beginnings(settings, lambda run: make_drafter(target, draft, run), target=target)
    joint = exact_joint(Rows(target), settings)
    assert max(joint.values()) < 0.5, "a sure thing proves nothing"
    assert chi_square_p_value(counts, joint) > SMALLEST_P_VALUE


@pytest.mark.parametrize(("settings_name", "precision"), CASES)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_draft_that_says_its_text_too_leaves_it_as_it_is(kind, settings_name, precision):
    """Of four tokens it knows one; two stand in the prompt, and one can be drafted from when the target has said it."""
    target = target_of(precision, tied=True)
    file = MAKERS[kind](small_module(tied=True), torch.tensor([2]), int8=precision == "int8")
    assert file.is_tied and {0, 1} < set(PROMPT) and 3 not in PROMPT
    settings = settings_of(drafter=kind, **SETTINGS[settings_name])
    draft = open_draft(file, target)
    counts = sampled_beginnings(settings, lambda run: make_drafter(target, draft, run), target=target)
    joint = exact_joint(Rows(target), settings)
    assert max(joint.values()) < 0.5, "a sure thing proves nothing"
    assert chi_square_p_value(counts, joint) > SMALLEST_P_VALUE
