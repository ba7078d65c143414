"""The embedded model as it is loaded by default: int8 on the lean path, where the machine can."""

from __future__ import annotations

import pytest
import torch

from specviz.config import RunSettings
from specviz.engine.lean_loading import why_general
from specviz.engine.lean_model import LeanModel
from specviz.engine.loader import ModelPair, choose_device, load_pair
from specviz.runs import Run
from tests.cores import threads_for_a_whole_model
from tests.engine.test_losslessness_embedded import PROMPTS, SHIPPED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.embedded,
    pytest.mark.skipif(why_general(choose_device("auto")) is not None, reason="the lean path is not taken here"),
]

NUM_NEW = 40


@pytest.fixture(scope="module")
def pair(embedded_dir) -> ModelPair:
    before = torch.get_num_threads()
    torch.set_num_threads(threads_for_a_whole_model())
    yield load_pair()
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def plainly(pair) -> dict[str, list[int]]:
    return {name: said(pair, name, "none").token_ids for name in PROMPTS}


def said(pair: ModelPair, name: str, kind: str):
    run = Run(pair, PROMPTS[name], RunSettings(drafter=kind, max_new_tokens=NUM_NEW))
    list(run)
    return run.result


def test_the_default_target_is_int8_on_the_lean_path(pair):
    assert isinstance(pair.target, LeanModel)
    assert pair.target.dtype == torch.int8
    assert 134e6 < pair.target.num_params < 135e6
    assert len(pair.eos_token_ids) > 0


@pytest.mark.parametrize("kind", ["prompt_lookup", "early_exit", *SHIPPED])
@pytest.mark.parametrize("name", PROMPTS)
def test_speculation_says_what_plain_decoding_says(pair, plainly, name, kind):
    result = said(pair, name, kind)
    assert result.token_ids == plainly[name]
    assert result.counts["drafted"] or kind == "prompt_lookup", "a lookup may find nothing"


@pytest.mark.parametrize("kind", SHIPPED)
def test_a_shipped_draft_agrees_with_its_target_far_more_often_than_chance(pair, kind):
    accepted = judged = 0
    for name in PROMPTS:
        counts = said(pair, name, kind).counts
        accepted, judged = accepted + counts["accepted"], judged + counts["accepted"] + counts["rejected"]
    assert accepted > 0.2 * judged > 0, f"{accepted} of {judged}"


def test_its_words_are_words(pair, plainly):
    assert "def add" in pair.vocabulary.tokenizer.decode(plainly["code"])
