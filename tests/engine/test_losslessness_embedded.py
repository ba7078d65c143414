"""The embedded model in fp32: speculation equals plain decoding and transformers' `generate`, on real text."""

from __future__ import annotations

import pytest
import torch

from specviz.config import RunSettings
from specviz.engine.draft_facts import DRAFT_KINDS, shipped_names
from specviz.engine.loader import ModelPair, load_pair
from specviz.runs import Run
from tests.cores import threads_for_a_whole_model
from tests.engine.runs import generate_ids

pytestmark = [pytest.mark.slow, pytest.mark.embedded]

NUM_NEW = 20
SHIPPED = [kind for kind in DRAFT_KINDS if shipped_names(kind)]
PROMPTS = {
    "code": "Write a Python function that adds two numbers.",
    "repetitive": "Repeat exactly: one two three one two three one two three one two three",
    "unicode": "Say: naïve 👩‍🚀 한국어",
}


@pytest.fixture(scope="module")
def pair(embedded_dir) -> ModelPair:
    torch.set_num_threads(threads_for_a_whole_model())
    yield load_pair(dtype="float32")
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def references(pair) -> dict[str, list[int]]:
    """What transformers' `generate` says; it ends after the end token, as a run does."""
    module, texts = pair.target._module, {}
    for name, prompt in PROMPTS.items():
        _, ids = pair.vocabulary.encode(prompt, raw=False)
        texts[name] = generate_ids(module, ids, NUM_NEW, eos_token_id=sorted(pair.eos_token_ids))
    return texts


@pytest.mark.parametrize("name", PROMPTS)
def test_plain_decoding_equals_generate(pair, references, name):
    run = Run(pair, PROMPTS[name], RunSettings(drafter="none", max_new_tokens=NUM_NEW))
    list(run)
    assert run.result.token_ids == references[name]


@pytest.mark.parametrize("k", [1, 4, 8, "auto"])
@pytest.mark.parametrize("kind", ["prompt_lookup", "early_exit", *SHIPPED])
def test_speculation_equals_generate(pair, references, kind, k):
    drafted = 0
    for name, prompt in PROMPTS.items():
        run = Run(pair, prompt, RunSettings(drafter=kind, num_draft_tokens=k, max_new_tokens=NUM_NEW))
        list(run)
        assert run.result.token_ids == references[name], name
        drafted += run.result.counts["drafted"]
    assert drafted or k == "auto", "an adaptive draft may find itself never confident enough"


def test_a_copy_of_the_target_has_every_token_accepted(pair):
    copied = ModelPair(pair.target, pair.vocabulary, pair.target, pair.eos_token_ids)
    run = Run(copied, PROMPTS["code"], RunSettings(drafter="draft_model", num_draft_tokens=4, max_new_tokens=NUM_NEW))
    list(run)
    assert run.result.counts["accepted"] + run.result.counts["cut"] == run.result.counts["drafted"] > 0
