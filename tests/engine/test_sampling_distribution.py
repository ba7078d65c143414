"""Sampled speculative text has exactly the target's distribution: the joint one of three tokens.

The models are tables over four tokens, so that the distribution of what plain decoding would say can
be enumerated; the reference computes it anew, in numpy, and not with the engine's pipeline. Every seed is
fixed. At the end, engines and drafters that are wrong on purpose fail the very same test.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from specviz.config import RunSettings
from specviz.drafters import make_drafter
from specviz.drafters.base import DraftedToken, Drafter, RunContext
from specviz.drafters.draft_model import DraftModel
from specviz.engine import verify
from specviz.engine.dice import Dice
from specviz.engine.speculative import decode
from tests.engine.runs import rounds, statuses
from tests.table_model import TableModel, letters_vocabulary, random_table

pytestmark = pytest.mark.slow

VOCAB = 4
NUM_RUNS = 1200
SMALLEST_P_VALUE = 1e-4
VOCABULARY = letters_vocabulary(["a", "b", "c", "</s>"])
PROMPT = (0, 1, 2, 0, 1)  # prompt lookup finds something in it
TARGET = TableModel(random_table(VOCAB, seed=1, scale=1.0), exit_table=random_table(VOCAB, seed=2, scale=1.0))
DRAFT = TableModel(random_table(VOCAB, seed=3, scale=1.0), num_layers=1)
KINDS = ("draft_model", "prompt_lookup", "early_exit")


# --- the reference ----------------------------------------------------------------------------


def reference_distribution(logits: np.ndarray, context: Sequence[int], settings: RunSettings, eos: Sequence[int]):
    """What the next token is drawn from: the definitions, one after the other, for one row."""
    logits = np.array(logits, dtype=np.float64)
    for token_id in set(context):
        factor = settings.repetition_penalty
        logits[token_id] = logits[token_id] * factor if logits[token_id] < 0 else logits[token_id] / factor
    if len(context) - len(PROMPT) < settings.min_new_tokens:
        logits[list(eos)] = -np.inf
    logits[list(settings.suppress_token_ids)] = -np.inf
    logits = logits / settings.temperature
    if settings.top_k:
        logits[logits < np.sort(logits)[-min(settings.top_k, VOCAB)]] = -np.inf
    probs = np.exp(logits - logits.max())
    probs /= probs.sum()
    if settings.top_p < 1.0:
        order = np.argsort(-probs)
        mass_before = np.cumsum(probs[order]) - probs[order]
        probs[order[mass_before >= settings.top_p]] = 0.0
        probs /= probs.sum()
    return probs


def exact_joint(model: TableModel, settings: RunSettings, eos: Sequence[int] = ()) -> dict[tuple[int, ...], float]:
    """The probability of every possible beginning of three tokens (shorter where the end token comes)."""
    joint = {(): 1.0}
    for _ in range(3):
        longer: dict[tuple[int, ...], float] = {}
        for said, prob in joint.items():
            if said and said[-1] in eos:
                longer[said] = prob
                continue
            context = [*PROMPT, *said]
            row = reference_distribution(model.logits_after(context).numpy(), context, settings, eos)
            for token_id in range(VOCAB):
                if row[token_id] > 0:
                    longer[(*said, token_id)] = prob * row[token_id]
        joint = longer
    assert sum(joint.values()) == pytest.approx(1.0)
    return joint


# --- the statistics ---------------------------------------------------------------------------


def sampled_beginnings(
    settings: RunSettings, make: Callable[[RunSettings], Drafter | None], eos: Sequence[int] = (), target=TARGET
) -> Counter[tuple[int, ...]]:
    """The first three tokens of many runs, a seed each."""
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(NUM_RUNS):
        run = replace(settings, seed=seed)
        *_, last = decode(target, make(run), PROMPT, VOCABULARY, run, eos_token_ids=frozenset(eos))
        counts[tuple(last["token_ids"][:3])] += 1
    return counts


def chi_square_p_value(counts: Counter[tuple[int, ...]], joint: dict[tuple[int, ...], float]) -> float:
    """Pearson's test; outcomes expected fewer than five times are pooled; an impossible one is p = 0."""
    if set(counts) - set(joint):
        return 0.0
    total = sum(counts.values())
    common = [outcome for outcome in joint if joint[outcome] * total >= 5]
    observed = [counts[outcome] for outcome in common]
    expected = [joint[outcome] * total for outcome in common]
    pooled = total - sum(expected)
    if pooled > 1e-9:
        observed.append(total - sum(observed))
        expected.append(pooled)
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(chi2.sf(statistic, len(observed) - 1))


def made_by_kind(kind: str) -> Callable[[RunSettings], Drafter | None]:
    return lambda settings: make_drafter(TARGET, DRAFT, replace(settings, drafter=kind))


def settings_of(**changes) -> RunSettings:
    base = {"num_draft_tokens": 3, "max_new_tokens": 4, "min_ngram": 1, "exit_layer": 1, "trace_detail": "none"}
    return RunSettings(**base | {"temperature": 1.0} | changes)


SETTINGS = {
    "temperature 1": {},
    "cold": {"temperature": 0.6},
    "top-p": {"temperature": 1.2, "top_p": 0.7},
    "top-k": {"temperature": 1.2, "top_k": 3},
    "penalty": {"repetition_penalty": 1.8},
    "reward": {"repetition_penalty": 0.6, "num_draft_tokens": 2},
    "adaptive k": {"num_draft_tokens": "auto", "max_draft_tokens": 3, "draft_threshold": 0.45},
    "suppressed": {"suppress_token_ids": (2,), "temperature": 1.5},
    "all of it": {
        "temperature": 1.4,
        "top_k": 3,
        "top_p": 0.85,
        "repetition_penalty": 1.3,
        "num_draft_tokens": "auto",
        "max_draft_tokens": 3,
        "draft_threshold": 0.4,
    },
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_three_tokens_together_have_the_targets_distribution(kind, changes):
    settings = settings_of(**changes)
    counts = sampled_beginnings(settings, made_by_kind(kind))
    assert chi_square_p_value(counts, exact_joint(TARGET, settings)) > SMALLEST_P_VALUE


@pytest.mark.parametrize("name", ["temperature 1", "penalty", "all of it"])
def test_the_distribution_holds_where_a_lookup_comes_before_the_draft_model(name):
    settings = settings_of(**SETTINGS[name], lookup_first=True)
    counts = sampled_beginnings(settings, made_by_kind("draft_model"))
    assert chi_square_p_value(counts, exact_joint(TARGET, settings)) > SMALLEST_P_VALUE


@pytest.mark.parametrize("kind", KINDS)
def test_the_distribution_holds_where_the_end_token_may_come_inside_a_block(kind):
    settings = settings_of(min_new_tokens=2, temperature=1.5)
    counts = sampled_beginnings(settings, made_by_kind(kind), eos=(3,))
    assert chi_square_p_value(counts, exact_joint(TARGET, settings, eos=(3,))) > SMALLEST_P_VALUE


def test_plain_sampling_has_the_distribution_too():
    settings = settings_of(temperature=0.8, top_p=0.9, drafter="none")
    counts = sampled_beginnings(settings, lambda _: None)
    assert chi_square_p_value(counts, exact_joint(TARGET, settings)) > SMALLEST_P_VALUE


def constant_rows(probs: Sequence[float], **model) -> TableModel:
    """A model that says the same whatever came before."""
    return TableModel(torch.tensor(probs).log().expand(VOCAB, VOCAB).clone(), **model)


def test_draft_and_target_are_warped_alike():
    # huggingface/transformers #32867, vllm-project/vllm #9834: warpers on one side, argmax drafts with full q.
    target, draft = constant_rows([0.5, 0.3, 0.15, 0.05]), constant_rows([0.1, 0.2, 0.3, 0.4])
    settings = settings_of(temperature=0.7, top_p=0.8, max_new_tokens=200)
    counts: Counter[int] = Counter()
    for seed in range(50):
        *_, last = decode(target, DraftModel(draft), [0], VOCABULARY, replace(settings, seed=seed))
        counts.update(last["token_ids"])
    exact = reference_distribution(target.table[0].numpy(), [0], settings, ())
    assert counts.total() == 10_000
    total_variation = 0.5 * sum(abs(counts[token_id] / 10_000 - prob) for token_id, prob in enumerate(exact))
    assert total_variation < 0.015
    assert counts[3] == 0


# --- acceptance -------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"temperature": 0.7, "top_p": 0.8}, {"top_k": 2}], ids=str)
@pytest.mark.parametrize("kind", ["draft_model", "early_exit"])
def test_acceptance_is_the_sum_of_the_smaller_probabilities(kind, changes):
    # Leviathan et al. 2023, theorem 3.5: beta = sum over tokens of min(target, draft), for each judged token.
    settings = settings_of(num_draft_tokens=4, max_new_tokens=30, **changes)
    proposer = {"draft_model": DRAFT.table, "early_exit": TARGET.exit_table}[kind]
    accepted = judged = 0
    expected = variance = 0.0
    for seed in range(30):
        run = replace(settings, seed=seed)
        events = list(decode(TARGET, made_by_kind(kind)(run), PROMPT, VOCABULARY, run))
        context = list(PROMPT)
        for event in rounds(events):
            for position, status in enumerate(statuses(event)):
                if status in ("accepted", "rejected"):
                    before = [*context, *(token["id"] for token in event["draft"][:position])]
                    target_row = reference_distribution(TARGET.logits_after(before).numpy(), before, settings, ())
                    draft_row = reference_distribution(proposer[before[-2], before[-1]].numpy(), before, settings, ())
                    beta = np.minimum(target_row, draft_row).sum()
                    expected, variance = expected + beta, variance + beta * (1 - beta)
                    judged, accepted = judged + 1, accepted + (status == "accepted")
            context += event["committed"]
    assert judged > 400
    assert abs(accepted - expected) < 4 * variance**0.5


def test_a_lookup_is_accepted_with_the_targets_own_probability():
    target = constant_rows([0.4, 0.3, 0.2, 0.1])
    accepted = Counter()
    judged = Counter()
    for seed in range(100):
        run = settings_of(drafter="prompt_lookup", num_draft_tokens=2, max_new_tokens=30, seed=seed)
        for event in rounds(list(decode(target, make_drafter(target, None, run), PROMPT, VOCABULARY, run))):
            for token in event["draft"]:
                if token["status"] in ("accepted", "rejected"):
                    judged[token["id"]] += 1
                    accepted[token["id"]] += token["status"] == "accepted"
    for token_id, prob in enumerate([0.4, 0.3, 0.2, 0.1]):
        error = 4 * (prob * (1 - prob) / judged[token_id]) ** 0.5
        assert accepted[token_id] / judged[token_id] == pytest.approx(prob, abs=error)


# --- the tests above can fail -----------------------------------------------------------------


@dataclass
class Tampered:
    """A draft model whose proposals go through `tamper` (a list so far -> the next one, or None to stop)."""

    inner: DraftModel
    tamper: Callable[[DraftedToken], DraftedToken | None]
    kind: str = "draft_model"
    name: str = "tampered"
    feature_layers: tuple[int, ...] = ()

    def open(self, run: RunContext):
        session = self.inner.open(run)
        honest, tamper = session.propose, self.tamper

        def propose(*arguments) -> Generator[DraftedToken, None, str | None]:
            for drafted in honest(*arguments):
                changed = tamper(drafted)
                if changed is None:
                    return "confidence"
                yield changed
            return None

        session.propose = propose
        session.chain = lambda *_: None  # nothing is drafted past `tamper`
        return session


SURELY_WRONG = 1e-8


def p_value_with(tamper: Callable[[DraftedToken], DraftedToken | None], num_draft_tokens: int = 1) -> float:
    settings = settings_of(num_draft_tokens=num_draft_tokens)
    counts = sampled_beginnings(settings, lambda _: Tampered(DraftModel(DRAFT), tamper))
    return chi_square_p_value(counts, exact_joint(TARGET, settings))


def test_the_test_passes_a_draft_that_is_left_alone():
    assert p_value_with(lambda drafted: drafted) > SMALLEST_P_VALUE


def test_the_test_fails_a_draft_that_takes_its_argmax_but_claims_its_whole_distribution():
    assert p_value_with(lambda drafted: replace(drafted, token_id=int(drafted.probs.argmax()))) < SURELY_WRONG


def test_the_test_fails_a_draft_that_claims_another_temperature():
    def colder(drafted: DraftedToken) -> DraftedToken:
        probs = drafted.probs**4
        return replace(drafted, probs=probs / probs.sum())

    assert p_value_with(colder) < SURELY_WRONG


def test_the_test_fails_a_draft_that_drops_a_token_for_what_it_is():
    # Confidence looked at after the draw: unlikely tokens are never put to the test.
    assert p_value_with(lambda drafted: drafted if drafted.probs[drafted.token_id] > 0.3 else None) < SURELY_WRONG


def test_the_test_fails_a_correction_drawn_from_the_target_instead_of_the_residual(monkeypatch):
    monkeypatch.setattr(verify, "residual_distribution", lambda target_probs, draft_probs, rejected_id: target_probs)
    assert p_value_with(lambda drafted: drafted) < SURELY_WRONG


def test_the_test_fails_an_engine_that_accepts_on_the_draws_of_the_drafter(monkeypatch):
    # One die for drafting and accepting: each is uniform, together they are not.
    uniform = Dice.uniform
    monkeypatch.setattr(Dice, "uniform", lambda dice, index, position, purpose: uniform(dice, index, position, "draft"))
    assert p_value_with(lambda drafted: drafted, num_draft_tokens=3) < SURELY_WRONG


def test_the_reference_is_not_the_engines_pipeline():
    outcomes = exact_joint(TARGET, settings_of())
    assert len(outcomes) == VOCAB**3
    by_hand = 1.0
    context = list(PROMPT)
    for token_id in (1, 0, 2):
        row = np.exp(TARGET.table[context[-2], context[-1]].double().numpy())
        by_hand *= row[token_id] / row.sum()
        context.append(token_id)
    assert outcomes[1, 0, 2] == pytest.approx(by_hand)
    assert set(outcomes) == set(itertools.product(range(VOCAB), repeat=3))
