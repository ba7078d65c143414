"""Heads that are wider than the tokenizer: ids that no token has are masked alike, with and without a draft.

huggingface/transformers #45307: two models with one tokenizer, padded to different widths, were refused or crashed.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from specviz.engine.hf_model import TransformersModel
from specviz.engine.loader import ModelPair
from specviz.errors import BadRequest
from specviz.runs import Run, RunSettings
from tests.engine.runs import byte_vocabulary, finished, generate_ids, new_ids, rounds, run_events
from tests.tiny_models import VOCAB_SIZE, build_model, noisy_copy

NARROW, WIDE = 512, 640
PROMPT = [30, 31, 32, 30, 31]
WIDTHS = [(NARROW, WIDE), (WIDE, NARROW), (WIDE, WIDE), (VOCAB_SIZE, WIDE), (WIDE, VOCAB_SIZE)]


@cache
def module_of_width(width: int, bias_from: int | None = None):
    """The tiny Llama with its head padded to `width`; `bias_from`: from this id on, logits are 20 higher."""
    module = build_model("llama", vocab_size=width)
    if bias_from is not None:
        bias = torch.zeros(width)
        bias[bias_from:] = 20.0
        module.lm_head.register_forward_hook(lambda head, inputs, logits: logits + bias)
    return module


def model_of_width(width: int, bias_from: int | None = None) -> TransformersModel:
    return TransformersModel(module_of_width(width, bias_from), f"width {width}")


@pytest.mark.parametrize("kind", ["draft_model", "early_exit", "prompt_lookup"])
@pytest.mark.parametrize(("target_width", "draft_width"), WIDTHS)
def test_greedy_text_is_that_of_generate_with_the_padding_suppressed(kind, target_width, draft_width):
    expected = generate_ids(
        module_of_width(target_width), PROMPT, 30, suppress_tokens=list(range(VOCAB_SIZE, target_width)) or None
    )
    draft = TransformersModel(noisy_copy(module_of_width(draft_width), 0.02), "draft")
    events = run_events(
        model_of_width(target_width),
        PROMPT,
        draft=draft,
        drafter_kind=kind,
        min_ngram=1,
        exit_layer=2,
        max_new_tokens=30,
    )
    assert new_ids(events) == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["none", "draft_model", "early_exit", "prompt_lookup"])
def test_a_target_that_wants_ids_beyond_the_tokenizer_never_gets_them(kind, temperature):
    target = model_of_width(WIDE, bias_from=600)
    draft = model_of_width(NARROW, bias_from=500)
    events = run_events(
        target,
        PROMPT,
        draft=draft,
        drafter_kind=kind,
        temperature=temperature,
        min_ngram=1,
        max_new_tokens=20,
        trace_detail="full",
    )
    assert all(token_id < VOCAB_SIZE for token_id in new_ids(events))
    for event in rounds(events):
        for token in [*event["draft"], event["extra"]]:
            for names in (token.get("draft_top"), token.get("target_top"), token.get("residual_top")):
                assert all(token_id < VOCAB_SIZE for token_id, _, _ in names or [])


def test_the_masked_run_is_the_same_with_and_without_a_draft():
    target = model_of_width(WIDE, bias_from=600)
    plain = new_ids(run_events(target, PROMPT, max_new_tokens=30))
    for kind in ("draft_model", "early_exit", "prompt_lookup"):
        events = run_events(
            target, PROMPT, draft=model_of_width(NARROW), drafter_kind=kind, min_ngram=1, max_new_tokens=30
        )
        assert new_ids(events) == plain


def test_draft_and_target_are_compared_over_the_shared_ids():
    # A target of probability 1 beyond the tokenizer: masked, it is the unbiased model, and accepts its own copy.
    target = model_of_width(WIDE, bias_from=VOCAB_SIZE)
    draft = model_of_width(WIDE)
    events = run_events(target, PROMPT, draft=draft, drafter_kind="draft_model", temperature=0.8, max_new_tokens=40)
    counts = finished(events)["counts"]
    assert counts["accepted"] == counts["drafted"] > 0


def test_a_run_over_padded_heads_is_recorded_with_texts():
    pair = ModelPair(model_of_width(WIDE, bias_from=600), byte_vocabulary(), model_of_width(NARROW), frozenset())
    settings = RunSettings(drafter="draft_model", temperature=1.0, max_new_tokens=12)
    events = list(Run(pair, "hello", settings, raw=True))
    assert events[-1]["type"] == "run_finished"
    assert all(isinstance(token["text"], str) for event in rounds(events) for token in event["draft"])


def test_a_prompt_with_an_id_beyond_the_tokenizer_is_refused_by_its_number():
    with pytest.raises(BadRequest, match="600"):
        run_events(model_of_width(WIDE), [1, 600], max_new_tokens=4)
