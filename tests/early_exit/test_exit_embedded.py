"""Early exit on the embedded model: plain where nothing leaves, and what a decoder without a cache says where all do."""

from __future__ import annotations

import pytest
import torch

from specviz.config import RunSettings
from specviz.early_exit.exit_run import ExitRun
from specviz.early_exit.exit_settings import ExitSettings
from specviz.engine.cut_vocabulary import CutVocabulary
from specviz.engine.loader import ModelPair, load_pair
from specviz.runs import Run
from tests.cores import threads_for_a_whole_model
from tests.early_exit.references import decode_slowly, reference_of_lean, reference_of_llama

pytestmark = [pytest.mark.slow, pytest.mark.embedded]

NUM_NEW = 12
PROMPTS = [
    "Write a Python function that adds two numbers.",
    "Repeat exactly: one two three one two three one two three",
    "Say: naïve 👩‍🚀 한국어",
    "What is the capital of France?",
    "Write a short story about a fox and a river.",
    "Translate 'good morning' into Spanish.",
    "List five fruits.",
    "Why is the sky blue?",
    "def fibonacci(n):",
    "Summarize the plot of Romeo and Juliet.",
    "What is 17 times 23?",
    "Give me a recipe for pancakes.",
    "Who wrote Don Quixote?",
    "Explain gravity to a child.",
    "Write a haiku about winter.",
    "Name the planets of the solar system.",
    "How do I boil an egg?",
    "Write an email that asks for a day off.",
    "What does HTTP stand for?",
    "Tell me a joke.",
]


@pytest.fixture(scope="module", params=["int8", "float32"])
def pair(request, embedded_dir) -> ModelPair:
    torch.set_num_threads(threads_for_a_whole_model())
    yield load_pair(dtype=request.param, device="cpu")
    torch.set_num_threads(1)


def some_prompts(pair: ModelPair) -> list[str]:
    """All of them on the path that the embedded target takes by default; a few on the slow one."""
    return PROMPTS if pair.target.dtype == torch.int8 else PROMPTS[:3]


def left_early(pair: ModelPair, prompt: str, **exits) -> ExitRun:
    run = ExitRun(pair, prompt, RunSettings(max_new_tokens=NUM_NEW, trace_detail="none"), ExitSettings(**exits))
    list(run)
    return run


def said(pair: ModelPair, prompt: str, **settings) -> list[int]:
    run = Run(
        pair, prompt, RunSettings(**{"drafter": "none", "max_new_tokens": NUM_NEW, "trace_detail": "none"} | settings)
    )
    list(run)
    return run.result.token_ids


def test_never_leaving_is_plain_decoding(pair):
    for prompt in some_prompts(pair):
        assert left_early(pair, prompt, threshold="never").result.token_ids == said(pair, prompt)


def test_at_the_last_layer_an_exit_is_the_model_itself(pair):
    target = pair.target
    _, ids = pair.vocabulary.encode(PROMPTS[0], raw=False)
    heads = pair.exit_heads.get(target, "auto")
    whole = target.forward(ids, target.new_cache()).logits.float()
    states = target.forward_by_layer(ids, target.new_cache()).states
    torch.testing.assert_close(heads.full_logits(30, states).softmax(-1), whole.softmax(-1), atol=1e-5, rtol=0)
    cut = whole[:, heads.vocab_ids].softmax(-1)
    torch.testing.assert_close(heads.cut_logits(30, states).softmax(-1), cut, atol=1e-5, rtol=0)


@pytest.mark.parametrize("heads", ["auto", "plain"])
@pytest.mark.parametrize("layer", [10, 24])
def test_always_leaving_is_what_a_decoder_without_a_cache_does(pair, layer, heads):
    target = pair.target
    is_lean = target.dtype == torch.int8
    run = left_early(pair, PROMPTS[4], threshold=0.0, exit_layers=(layer,), heads=heads)
    own, cut = run.plan.heads, CutVocabulary(run.plan.heads.vocab_ids, target.vocab_size)
    ids, _ = decode_slowly(
        reference_of_lean(target) if is_lean else reference_of_llama(target._module),
        lambda layer, states: cut.widen(own.cut_logits(layer, states)),
        lambda states, index: layer,
        run.prompt["token_ids"],
        NUM_NEW,
    )
    assert run.result.token_ids == ids


@pytest.mark.parametrize("heads", ["auto", "plain"])
@pytest.mark.parametrize("exit_layer", [10, 21])
def test_self_speculation_says_what_plain_decoding_says(pair, exit_layer, heads):
    drafting = {"drafter": "early_exit", "exit_layer": exit_layer, "exit_heads": heads}
    for prompt in some_prompts(pair)[:6]:
        assert said(pair, prompt, **drafting) == said(pair, prompt)
