"""Perplexity against sums made by hand."""

from __future__ import annotations

import math

import pytest
import torch

from specviz.lab import perplexity as module
from specviz.lab.perplexity import PerplexityMeter, TextLoss, fold_perplexities, perplexity, text_loss
from tests.engine.runs import tiny_target
from tests.table_model import TableModel, random_table
from tests.tiny_models import tiny_model

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def test_a_model_that_knows_nothing_is_as_perplexed_as_it_has_tokens():
    assert perplexity(TableModel(torch.zeros(16, 16)), [IDS, IDS[:3]]) == pytest.approx(16)


def test_it_is_the_sum_of_the_log_probabilities_of_what_follows():
    model = TableModel(random_table(16))
    log_probs = [float(model.logits_after(IDS[:i]).log_softmax(-1)[IDS[i]]) for i in range(1, len(IDS))]
    loss = text_loss(model, IDS)
    assert loss.negative_log_likelihood == pytest.approx(-sum(log_probs), rel=1e-5)
    assert loss.num_tokens == len(IDS) - 1
    assert perplexity(model, [IDS]) == pytest.approx(math.exp(-sum(log_probs) / len(log_probs)), rel=1e-5)


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_how_a_text_is_chunked_does_not_matter(chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_TOKENS", chunk)
    ids = torch.tensor([IDS * 3])
    expected = float(tiny_model()(ids, labels=ids).loss.detach())  # transformers' own mean loss
    loss = text_loss(tiny_target(), IDS * 3)
    assert loss.negative_log_likelihood / loss.num_tokens == pytest.approx(expected, rel=1e-4)


def test_nothing_to_predict():
    assert perplexity(tiny_target(), []) is None
    assert perplexity(tiny_target(), [[5], []]) is None


@pytest.mark.parametrize("job", ["perplexity_ours", "perplexity_hf", "perplexity_reference"])
def test_the_jobs(job, tiny_setup):
    loss = TextLoss(**PerplexityMeter(job, tiny_setup).answer({"token_ids": IDS}))
    assert loss.negative_log_likelihood == pytest.approx(text_loss(tiny_target(), IDS).negative_log_likelihood)


def test_texts_are_pooled_by_tokens_and_a_failed_worker_is_null():
    texts = [[{"negative_log_likelihood": 1.0, "num_tokens": 1}], [{"negative_log_likelihood": 5.0, "num_tokens": 2}]]
    assert fold_perplexities({"perplexity_ours": texts}, 2) == {
        "ours": pytest.approx(math.exp(2)),
        "hf": None,
        "reference": None,
        "texts": 2,
        "tokens": 3,
    }
