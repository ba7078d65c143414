"""A suite's prompts with plain decoding's answers, to measure a draft along."""

from __future__ import annotations

import pytest

from specviz.engine.vocabulary import Vocabulary
from specviz.lab.suite import SuitePrompt
from specviz.training import suite_answers
from specviz.training.objective import CutHead
from specviz.training.suite_answers import answered_suite, greedy_answer
from specviz.training.trainer import measure
from tests.tiny_tokenizers import byte_level_tokenizer
from tests.training.tiny_teachers import FEATURE_LAYERS, KEPT_LAYERS, cut_head, new_head_student, tiny_teacher

SUITE = (SuitePrompt("the quick brown fox", "a"), SuitePrompt("one two three " * 60, "b"))
LIMITS = {"ends": frozenset(), "max_prompt_tokens": 40, "max_new_tokens": 12}


def answered(folder, suite=SUITE, layers=KEPT_LAYERS, **limits):
    model, vocabulary = tiny_teacher().model, Vocabulary(byte_level_tokenizer())
    return answered_suite(model, vocabulary, suite, layers, folder, **LIMITS | limits)


def test_every_prompt_is_cut_to_fit_and_has_the_answer_of_plain_decoding(tmp_path):
    examples = answered(tmp_path)
    batch = examples.batch([0, 1])
    model, vocabulary = tiny_teacher().model, Vocabulary(byte_level_tokenizer())
    first_prompt = vocabulary.encode(SUITE[0].prompt, raw=False)[1]
    ids = batch.ids[0, : examples.lengths[0]].tolist()
    assert ids[: len(first_prompt)] == first_prompt and len(ids) == len(first_prompt) + 12
    for place in range(len(first_prompt), len(ids)):  # each token is the argmax after all before it, without a cache
        assert ids[place] == int(model.forward(ids[:place], model.new_cache()).logits[-1].argmax())
    assert 12 < examples.lengths[1] <= 40 + 12


def test_all_answers_count_and_only_they(tmp_path):
    examples = answered(tmp_path)
    batch = examples.batch([0, 1])
    assert len(examples) == 2
    # What is known after the last prompt token and after every token of the answer but its last, which is never fed.
    assert batch.weights.sum(1).tolist() == [12.0, 12.0]


def test_an_answer_stops_behind_its_end_or_at_the_limit():
    model = tiny_teacher().model
    free = greedy_answer(model, [1, 5, 9], frozenset(), 10)
    assert len(free) == 10
    end = free[4]
    assert greedy_answer(model, [1, 5, 9], frozenset([end]), 10) == free[: free.index(end) + 1]


def test_what_was_answered_is_read_again_and_other_prompts_are_answered_anew(tmp_path, monkeypatch):
    first = answered(tmp_path)
    asked = []
    real = greedy_answer
    monkeypatch.setattr(suite_answers, "greedy_answer", lambda *args: asked.append(args) or real(*args))
    assert answered(tmp_path).fingerprint == first.fingerprint and not asked
    assert answered(tmp_path, layers=KEPT_LAYERS[-1:]).fingerprint == first.fingerprint and not asked
    answered(tmp_path, SUITE[:1])
    answered(tmp_path, max_new_tokens=5)
    assert len(asked) == 1 + 2


def test_the_agreement_is_that_of_the_draft_with_the_targets_choice(tmp_path, monkeypatch):
    examples, student = answered(tmp_path), new_head_student(feature_layers=FEATURE_LAYERS)
    cut = cut_head()
    head = CutHead(cut.vocab_ids, cut.rows, tiny_teacher().head)
    # A draft that knows the target's own last states says what the target says, where it can say it.
    monkeypatch.setattr(student, "head_inputs", lambda batch, steps: iter([batch.last_states[:, 1:]]))
    row = measure(student, head, examples.batches([[0, 1]]), 1)[0]
    batch, sayable = examples.batch([0, 1]), 0
    choices = (batch.last_states @ tiny_teacher().head.T).argmax(-1).tolist()
    for ids, chosen, weights in zip(batch.ids.tolist(), choices, batch.weights, strict=True):
        for place in weights.nonzero()[:, 0].tolist():
            sayable += chosen[place] in cut.vocab_ids.tolist() or chosen[place] in ids[: place + 1]
    assert row["tokens"] == 24 and row["agreement"] == pytest.approx(sayable / 24, abs=1e-6)
    assert 0 < sayable < 24
