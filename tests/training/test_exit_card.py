"""The card of exit heads states what was measured, with its denominators."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from specviz.early_exit.exit_head_files import EXIT_HEADS_FILE, SHIPPED_DIR
from specviz.training.exit_card import exit_card

OWN = {"agreement": 0.92, "layers_saved": 0.22}
ROW = {
    "threshold": 0.5,
    "agreeing": 680,
    "agreement": 0.68,
    "layers_per_token": 22.5,
    "layers_saved": 0.25,
    "looks": 2.5,
    "through_all_layers": 500,
    "through_all_layers_agreeing": 430,
    "median_common_prefix": 3.5,
    "texts_that_stay_equal": 1,
    "own_states": OWN,
}
LATE = ROW | {
    "threshold": 0.9,
    "agreement": 0.91,
    "layers_saved": 0.06,
    "own_states": {"agreement": 0.99, "layers_saved": 0.07},
}
COUNTS = {
    "rounds": 400,
    "committed": 1000,
    "mean_tokens_per_round": 2.5,
    "first_judged": 390,
    "first_accepted": 195,
    "acceptance_at_first": 0.5,
    "accepted": 300,
    "drafted": 1500,
    "identical": 20,
}
PLAIN = COUNTS | {"rounds": 900, "mean_tokens_per_round": 1.11, "first_accepted": 39, "acceptance_at_first": 0.1}
TRAINED = {
    "plan": {"positions_per_step": 64, "epochs": 1.5, "seed": 1, "rank": 128},
    "data": {
        "positions": 1,
        "sequences": 1,
        "held_out_positions": 1,
        "held_out_sequences": 1,
        "tokens": 1,
        "one_in": 8,
    },
    "steps": 1,
    "real_exits": {"answers": 20, "tokens": 1000, "most_tokens": 48, "num_layers": 30, "rows": [ROW, LATE]},
    "drafting": {
        "prompts": 20,
        "tokens": 1000,
        "exit_layer": 10,
        "num_layers": 30,
        "num_draft_tokens": 4,
        "translators": COUNTS,
        "plain": PLAIN,
    },
}


def card(rows=None):
    trained = copy.deepcopy(TRAINED)
    if rows is not None:
        trained["real_exits"]["rows"] = rows
    return exit_card("some heads", "some target", trained)


def test_real_exits_are_told_beside_the_full_models_own_states():
    said = card()
    assert "along 20 held-out greedy answers of the full model (1,000 tokens, at most 48 of each)" in said
    assert "| 0.5 | 680 of 1000: 68.0% | 25.0% | 22.5 of 30 | 92.0% | 22.0% | 430 of 500 |" in said
    assert "| 0.5 | 3.5 | 1 of 20 |" in said


def test_it_is_said_that_the_goal_is_missed_where_it_is_and_why():
    said = unwrapped(card())
    assert "Over the full model's own states 90% is reached with 22.0% fewer layers (threshold 0.5)" in said
    assert "with real exits it is not: 68.0% agree there" in said and "70 of 500 are wrong" in said
    assert "With real exits 90% is reached, at a threshold of 0.9 with 6.0% fewer layers." in said
    missed = unwrapped(card([ROW]))
    assert "not reached at any of these thresholds; 68.0% is the most, at a threshold of 0.5 with 25.0% fewer" in missed
    reached = unwrapped(card([ROW | {"agreement": 0.95}]))
    assert "is reached, at a threshold of 0.5 with 25.0% fewer layers." in reached and "it is not" not in reached


def unwrapped(text):
    return " ".join(text.split())


def test_drafting_is_told_beside_the_plain_head():
    said = card()
    assert "k 4, drafting with the first 10 of 30 layers, on 20 held-out prompts (1,000 tokens)" in said
    assert "| translators | 195 of 390: 50.0% | 300 of 1500 | 1000 in 400: 2.50 | 20 of 20 |" in said
    assert "| plain | 39 of 390: 10.0% |" in said and "1000 in 900: 1.11 | 20 of 20 |" in said


def test_what_was_not_measured_is_not_told():
    trained = {name: TRAINED[name] for name in ("plan", "data", "steps")}
    said = exit_card("some heads", "some target", trained)
    assert "Real exits" not in said and "drafter" not in said


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in SHIPPED_DIR.glob(f"*/{EXIT_HEADS_FILE}")), ids=lambda path: path.name
)
def test_a_shipped_card_is_what_its_facts_say(folder: Path):
    facts = json.loads((folder / EXIT_HEADS_FILE).read_text(encoding="utf-8"))
    told = (folder / "README.md").read_text(encoding="utf-8")
    assert told == exit_card(facts["name"], facts["target"]["name"], facts["trained"])
    assert "## Real exits" in told and "## As a drafter" in told
