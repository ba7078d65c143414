"""The logits pipeline against transformers' own processors, alone, together, in order, row by row."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specviz.config import RunSettings
from specviz.engine.logits import LogitsPipeline
from specviz.errors import BadRequest
from tests.tiny_models import tiny_model

VOCAB = 50
EOS = (3, 4)
PROMPT = [7, 7, 8, 9, 3]


def pipeline(num_prompt_tokens: int = len(PROMPT), vocab_size: int = VOCAB, **settings) -> LogitsPipeline:
    return LogitsPipeline(RunSettings(**settings), vocab_size, num_prompt_tokens, frozenset(EOS))


def random_logits(num_rows: int, seed: int = 0, width: int = VOCAB) -> torch.Tensor:
    return 4 * torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed))


def transformers_processors(settings: RunSettings, num_prompt_tokens: int) -> LogitsProcessorList:
    """The same settings as transformers' `generate` builds them, in its order."""
    processors = LogitsProcessorList()
    if settings.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(settings.repetition_penalty))
    if settings.min_new_tokens:
        processors.append(
            MinNewTokensLengthLogitsProcessor(num_prompt_tokens, settings.min_new_tokens, list(EOS), device="cpu")
        )
    if settings.suppress_token_ids:
        processors.append(SuppressTokensLogitsProcessor(list(settings.suppress_token_ids), device="cpu"))
    if not settings.is_greedy:
        if settings.temperature != 1.0:
            processors.append(TemperatureLogitsWarper(settings.temperature))
        if settings.top_k:
            processors.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1.0:
            processors.append(TopPLogitsWarper(settings.top_p))
    return processors


def transformers_rows(
    settings: RunSettings, logits: torch.Tensor, context: list[int], draft: list[int]
) -> torch.Tensor:
    """Row by row, as if the tokens had come one at a time."""
    processors = transformers_processors(settings, len(PROMPT))
    ids = [context + draft[:row] for row in range(len(logits))]
    return torch.cat(
        [processors(torch.tensor([ids[row]]), logits[row : row + 1].clone()) for row in range(len(logits))]
    )


ADJUSTMENTS = [
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"min_new_tokens": 3},
    {"suppress_token_ids": (0, 3, 40)},
    {"repetition_penalty": 1.5, "min_new_tokens": 2, "suppress_token_ids": (1, 7)},
]
WARPERS = [
    {"temperature": 0.7},
    {"temperature": 1.0},
    {"temperature": 2.5},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_k": 1000},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 1.0, "top_p": 1e-6},
    {"temperature": 0.7, "top_k": 10, "top_p": 0.6},
    {"temperature": 3.0, "top_k": 3, "top_p": 0.95},
]


@pytest.mark.parametrize("changes", ADJUSTMENTS, ids=str)
def test_adjusted_logits_equal_transformers(changes):
    settings = RunSettings(max_new_tokens=8, **changes)
    context, draft = [*PROMPT, 11], [12, 7, 13]
    logits = random_logits(4)
    ours = pipeline(max_new_tokens=8, **changes).adjust(logits.clone(), context, draft)
    theirs = transformers_rows(settings, logits, context, draft)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("adjustment", [{}, ADJUSTMENTS[-1]], ids=["bare", "adjusted"])
@pytest.mark.parametrize("changes", WARPERS, ids=str)
def test_the_sampled_distribution_equals_transformers(changes, adjustment):
    settings = RunSettings(max_new_tokens=8, **changes, **adjustment)
    context, draft = [*PROMPT, 11], [12, 7, 13]
    logits = random_logits(4, seed=1)
    ours = pipeline(max_new_tokens=8, **changes, **adjustment)
    ours = ours.distribution(ours.adjust(logits.clone(), context, draft))
    theirs = transformers_rows(settings, logits, context, draft).softmax(-1)
    assert ((ours > 0) == (theirs > 0)).all(), "the same tokens are kept"
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def test_temperature_comes_before_the_nucleus():
    # At temperature 3 the nucleus of 0.8 holds more tokens than at temperature 1: order matters here.
    logits = random_logits(1, seed=2)
    hot, cold = pipeline(temperature=3.0, top_p=0.8), pipeline(temperature=1.0, top_p=0.8)
    assert (hot.distribution(logits) > 0).sum() > (cold.distribution(logits) > 0).sum()


def test_top_k_comes_before_the_nucleus():
    # Of ten equal tokens the nucleus 0.5 keeps five; of the two that top-k leaves it keeps one.
    logits = torch.linspace(0.0, 0.001, 10).unsqueeze(0)
    both = pipeline(vocab_size=10, temperature=1.0, top_k=2, top_p=0.45)
    alone = pipeline(vocab_size=10, temperature=1.0, top_p=0.45)
    assert (both.distribution(logits) > 0).sum() == 1
    assert (alone.distribution(logits) > 0).sum() == 5


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.4, "min_new_tokens": 4},
        {"temperature": 1.3, "top_p": 0.7, "suppress_token_ids": (5, 6, 7)},
    ],
    ids=str,
)
def test_order_and_meaning_are_those_of_generate_itself(settings):
    model = tiny_model("llama")
    prompt = torch.tensor([[10, 30, 10, 42]])
    torch.manual_seed(0)
    result = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        temperature=settings["temperature"],
        top_k=settings.get("top_k", 0),
        top_p=settings["top_p"],
        repetition_penalty=settings.get("repetition_penalty"),
        min_new_tokens=settings.get("min_new_tokens"),
        suppress_tokens=list(settings.get("suppress_token_ids", ())) or None,
        eos_token_id=[2, 9],
        max_new_tokens=6,
        output_scores=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    ours = LogitsPipeline(RunSettings(max_new_tokens=6, **settings), model.config.vocab_size, 4, frozenset({2, 9}))
    sequence = result.sequences[0].tolist()
    assert len(result.scores) >= 4
    for step, (raw, scores) in enumerate(zip(result.logits, result.scores, strict=True)):
        mine = ours.distribution(ours.adjust(raw, sequence[: 4 + step]))
        torch.testing.assert_close(mine, scores.softmax(-1), rtol=1e-4, atol=1e-7)


@given(
    st.lists(st.integers(0, VOCAB - 1), min_size=0, max_size=6),
    st.lists(st.integers(0, VOCAB - 1), min_size=0, max_size=5),
    st.integers(0, 9),
    st.sampled_from([1.0, 0.8, 1.7]),
    st.integers(0, 10**6),
)
def test_a_block_equals_one_position_at_a_time(committed, draft, min_new_tokens, penalty, seed):
    ours = pipeline(
        temperature=0.9,
        top_k=12,
        top_p=0.9,
        repetition_penalty=penalty,
        min_new_tokens=min_new_tokens,
        suppress_token_ids=(1, 2),
    )
    context = PROMPT + committed
    logits = random_logits(len(draft) + 1, seed)
    block = ours.adjust(logits, context, draft)
    single = [ours.adjust(logits[row : row + 1], context + draft[:row]) for row in range(len(draft) + 1)]
    assert torch.equal(block, torch.cat(single))
    assert torch.equal(ours.distribution(block), torch.cat([ours.distribution(row) for row in single]))


def test_a_repeated_token_is_penalized_once():
    logits = torch.zeros(1, VOCAB)
    logits[0, 7] = 3.0
    once = pipeline(repetition_penalty=1.5).adjust(logits, [7, 8, 8, 8, 8])
    often = pipeline(repetition_penalty=1.5).adjust(logits, [7, 7, 7, 7, 8])
    assert torch.equal(once, often)
    assert once[0, 7].item() == pytest.approx(2.0)


def test_the_penalty_counts_a_drafted_token_only_after_it():
    logits = torch.ones(3, VOCAB)
    rows = pipeline(repetition_penalty=2.0).adjust(logits, PROMPT, [20, 21])
    assert rows[:, 20].tolist() == [1.0, 0.5, 0.5]
    assert rows[:, 21].tolist() == [1.0, 1.0, 0.5]


def test_end_tokens_come_back_exactly_after_the_minimum_length():
    logits = torch.zeros(5, VOCAB)
    rows = pipeline(min_new_tokens=3).adjust(logits, [*PROMPT, 10], [11, 12, 13, 14])
    is_excluded = [torch.isinf(row[list(EOS)]).all().item() for row in rows]
    assert is_excluded == [True, True, False, False, False]  # 1, 2, then 3 new tokens before it


def test_ids_beyond_the_tokenizer_cannot_be_drawn():
    # Heads are padded to round widths: huggingface/transformers #45307.
    logits = torch.zeros(1, 64)
    logits[0, 60] = 20.0
    rows = pipeline(temperature=1.0).adjust(logits, PROMPT)
    assert rows.shape == (1, VOCAB)


def test_a_head_narrower_than_the_vocabulary_gives_its_missing_ids_probability_zero():
    ours = pipeline(temperature=1.0)
    rows = ours.distribution(ours.adjust(torch.zeros(2, 40), PROMPT, [1]))
    assert rows.shape == (2, VOCAB)
    assert (rows[:, 40:] == 0).all()
    assert rows.sum(-1).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("temperature", [1e-5, 1e-4, 1e-3, 0.1, 1.0, 100.0, 1000.0])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_no_temperature_gives_nan_or_infinity(temperature, scale):
    # karpathy/nanoGPT #738: a temperature near 0 overflows.
    rows = pipeline(temperature=temperature, top_k=20, top_p=0.9).distribution(scale * random_logits(3))
    assert torch.isfinite(rows).all()
    assert rows.sum(-1).tolist() == pytest.approx([1.0] * 3)


def test_a_cold_temperature_is_all_on_the_argmax():
    logits = random_logits(3)
    rows = pipeline(temperature=1e-5).distribution(logits)
    assert rows.argmax(-1).tolist() == logits.argmax(-1).tolist()
    assert rows.max(-1).values.tolist() == [1.0] * 3


@pytest.mark.parametrize(("temperature", "is_greedy"), [(0.0, True), (1e-6, True), (1e-5, False), (1e-3, False)])
def test_what_counts_as_greedy(temperature, is_greedy):
    assert pipeline(temperature=temperature).is_greedy == is_greedy


def test_at_least_one_token_survives_any_warping():
    for top_k, top_p in itertools.product([1, 2], [1e-9, 0.5]):
        rows = pipeline(temperature=1.0, top_k=top_k, top_p=top_p).distribution(torch.zeros(1, VOCAB))
        assert (rows > 0).any()


def test_the_model_sees_its_logits_unchanged():
    logits = random_logits(2)
    before = logits.clone()
    ours = pipeline(
        temperature=0.5, top_k=3, top_p=0.5, repetition_penalty=1.5, min_new_tokens=4, suppress_token_ids=(1,)
    )
    ours.distribution(ours.adjust(logits, PROMPT, [2]))
    assert torch.equal(logits, before)


def test_half_precision_logits_are_worked_on_in_full_precision():
    rows = pipeline(repetition_penalty=1.3).adjust(random_logits(1).bfloat16(), PROMPT)
    assert rows.dtype == torch.float32


def test_suppressing_an_id_beyond_the_vocabulary_is_refused_by_its_number():
    with pytest.raises(BadRequest, match="999"):
        pipeline(suppress_token_ids=(999,))


def test_suppressing_everything_is_refused():
    with pytest.raises(BadRequest, match="suppressed"):
        pipeline(vocab_size=6, suppress_token_ids=(0, 1, 2, 3, 4, 5))
    with pytest.raises(BadRequest, match="suppressed"):
        pipeline(vocab_size=6, suppress_token_ids=(0, 1, 2, 5), min_new_tokens=1)
