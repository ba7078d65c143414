"""The glossary holds every name that events and metrics use, each once."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from specviz import theory
from specviz.config import DRAFTER_KINDS
from specviz.events import EVENT_TYPES, Counts, ExtraKind, FinishReason, Mode, Round, RoundSeconds, Seconds, TokenStatus
from specviz.glossary import TERMS, term_for
from specviz.metrics import METRIC_NAMES
from specviz.trace.shapes import DRAFT_STOPS

PLAIN_DATA = {"type", "t", "seconds", "total"}  # they mean what they say anywhere

NAMES = {
    *get_args(TokenStatus),
    *get_args(ExtraKind),
    *get_args(FinishReason),
    *get_args(Mode),
    *DRAFTER_KINDS,
    *DRAFT_STOPS,
    *EVENT_TYPES,
    *METRIC_NAMES,
    *Counts.__annotations__,
    *Round.__annotations__,
    *RoundSeconds.__annotations__,
    *Seconds.__annotations__,
    *("cut_vocab_size", "feature_layers", "distillation"),
    *("acceptance_probability", "expected_tokens_per_round", "expected_speedup", "operations_ratio"),
} - PLAIN_DATA


@pytest.mark.parametrize("name", sorted(NAMES))
def test_names_of_events_and_metrics_are_explained(name):
    assert term_for(name) is not None


def test_no_name_means_two_things():
    names = Counter(name for term in TERMS for name in {term.term, *term.names})
    assert [name for name, times in names.items() if times > 1] == []


def test_every_term_is_one_or_two_sentences_with_a_source():
    for term in TERMS:
        assert term.source and term.names
        assert term.meaning.endswith(".")
        assert term.meaning.count(". ") <= 2, term.term


def test_theory_uses_the_same_words():
    for name in ("acceptance_probability", "expected_tokens_per_round", "expected_speedup", "operations_ratio"):
        assert callable(getattr(theory, name))


def test_an_unknown_word_has_no_term():
    assert term_for("quux") is None
