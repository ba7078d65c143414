"""Features of chosen target layers reach the drafter that asks for them: the right ones, for the right tokens."""

from __future__ import annotations

import pytest
import torch

from tests.engine.runs import rounds, run_events, tiny_target
from tests.table_model import ScriptedDrafter, TableModel, random_table
from tests.tiny_models import FAMILIES, tiny_model

LAYERS = (0, 2)


def wrong_after_one(target):
    """A script that is right about the first draft token, and wrong about the others."""

    def script(committed, k, round_index):
        right = target.greedy_ids(committed, 1)[0]
        return [right, *[(right + 1 + i) % target.vocab_size for i in range(k - 1)]]

    return script


def test_each_committed_token_but_the_newest_comes_with_its_features_once():
    target = TableModel(random_table(8))
    drafter = ScriptedDrafter(wrong_after_one(target), feature_layers=LAYERS)
    prompt = [1, 2, 3, 4]
    run_events(target, prompt, drafter=drafter, drafter_kind="draft_model", num_draft_tokens=3, max_new_tokens=12)
    (session,) = drafter.sessions
    (_, prompt_features) = session.prefills[0]
    told = prompt_features[2][:, 0].tolist()  # the table's feature is the fed id itself
    for _, features in session.commits:
        assert set(features) == set(LAYERS)
        told += features[2][:, 0].tolist()
    assert told == session.commits[-1][0][:-1], "the whole text but its pending token, in order"


def test_a_drafter_that_asks_for_none_gets_none():
    target = TableModel(random_table(8))
    drafter = ScriptedDrafter(wrong_after_one(target))
    run_events(target, [1, 2], drafter=drafter, drafter_kind="draft_model", num_draft_tokens=2, max_new_tokens=6)
    assert all(features == {} for _, features in drafter.sessions[0].commits)


@pytest.mark.parametrize("family", FAMILIES)
def test_they_are_the_hidden_states_of_transformers(family):
    ids = [5, 9, 3, 7, 11, 4]
    target = tiny_target(family)
    cache = target.new_cache()
    target.forward(ids[:2], cache, num_logits=0)
    output = target.forward(ids[2:], cache, feature_layers=LAYERS)
    with torch.no_grad():
        expected = tiny_model(family)(torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states
    for layer in LAYERS:
        torch.testing.assert_close(output.features[layer], expected[layer][0, 2:], atol=1e-4, rtol=1e-4)


def test_asking_for_them_changes_no_token():
    target = tiny_target()
    plain = run_events(target, [5, 6, 7], max_new_tokens=12)
    drafter = ScriptedDrafter(lambda committed, k, index: [9] * k, feature_layers=LAYERS)
    with_features = run_events(
        target, [5, 6, 7], drafter=drafter, drafter_kind="draft_model", num_draft_tokens=3, max_new_tokens=12
    )
    assert plain[-1]["token_ids"] == with_features[-1]["token_ids"]
    assert len(rounds(with_features)) > 0
