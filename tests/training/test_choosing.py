"""How a target's next tokens are drawn, against the softmax written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from specviz.engine.lean_kernels import choose_rows

VOCAB = 12


def choose(logits, scales, temperatures, uniforms):
    rows = len(logits)
    tokens, log_sums = np.empty(rows, np.int64), np.empty(rows, np.float32)
    choose_rows(logits.astype(np.float32), scales.astype(np.float32), temperatures, uniforms, tokens, log_sums)
    return tokens, log_sums


def softmax(logits):
    exps = np.exp(logits - logits.max(-1, keepdims=True))
    return exps / exps.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(200, VOCAB)), rng.uniform(0.2, 6, 200), rng.random(200)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 2.0])
def test_log_sums_are_those_of_the_scaled_logits_at_temperature_one(rows, temperature):
    logits, scales, uniforms = rows
    _, log_sums = choose(logits, scales, np.full(200, temperature, np.float32), uniforms)
    np.testing.assert_allclose(log_sums, np.log(np.exp(logits * scales[:, None]).sum(-1)), rtol=1e-5, atol=1e-5)


def test_at_temperature_zero_the_first_of_the_largest_is_chosen(rows):
    logits, scales, uniforms = rows
    logits = np.concatenate([logits, np.zeros((1, VOCAB))])
    tokens, _ = choose(logits, np.append(scales, 1), np.zeros(201, np.float32), np.append(uniforms, 0.9))
    np.testing.assert_array_equal(tokens, logits.argmax(-1))


@pytest.mark.parametrize("temperature", [0.7, 1.0, 2.0])
def test_a_uniform_picks_where_the_cumulative_probability_exceeds_it(rows, temperature):
    logits, scales, uniforms = rows
    tokens, _ = choose(logits, scales, np.full(200, temperature, np.float32), uniforms)
    sums = softmax(logits * scales[:, None] / temperature).cumsum(-1)
    is_clear = np.abs(sums - uniforms[:, None]).min(-1) > 1e-5
    assert is_clear.sum() > 190
    np.testing.assert_array_equal(tokens[is_clear], (sums > uniforms[:, None]).argmax(-1)[is_clear])


def test_the_ends_of_the_range_of_uniforms(rows):
    logits, scales, _ = rows
    hot = np.ones(200, np.float32)
    assert (choose(logits, scales, hot, np.zeros(200))[0] == 0).all()
    assert (choose(logits, scales, hot, np.full(200, np.nextafter(1, 0)))[0] < VOCAB).all()


def test_rows_with_temperatures_of_their_own(rows):
    logits, scales, uniforms = rows
    mixed = np.where(np.arange(200) % 2, 0.7, 0).astype(np.float32)
    tokens, _ = choose(logits, scales, mixed, uniforms)
    for temperature in (0.0, 0.7):
        own, _ = choose(logits, scales, np.full(200, temperature, np.float32), uniforms)
        np.testing.assert_array_equal(tokens[mixed == np.float32(temperature)], own[mixed == np.float32(temperature)])


def test_drawn_tokens_have_the_distribution_of_the_softmax():
    draws = 20_000
    rng = np.random.default_rng(3)
    logits = rng.normal(size=VOCAB)
    tokens, _ = choose(
        np.tile(logits, (draws, 1)), np.full(draws, 1.5), np.full(draws, 0.7, np.float32), rng.random(draws)
    )
    expected = draws * softmax(logits * 1.5 / 0.7)
    kept = expected >= 5
    counts = np.bincount(tokens, minlength=VOCAB)
    observed = np.append(counts[kept], counts[~kept].sum())
    assert chisquare(observed + 0, np.append(expected[kept], expected[~kept].sum())).pvalue > 1e-3
