"""Prompts as they are run: in the template, cut from the left, with room for the answer."""

from __future__ import annotations

import pytest

from specviz.engine.vocabulary import Vocabulary
from specviz.errors import BadRequest
from specviz.lab.prompts import prepare, untemplated
from specviz.lab.suite import SuitePrompt
from tests.engine.runs import byte_vocabulary
from tests.tiny_tokenizers import llama2_tokenizer

LONG = " ".join(f"word{i}" for i in range(60)) + " and the question?"


def prepared(text, longest, vocabulary=None, max_new_tokens=10, context=None):
    (prompt,) = prepare(
        [SuitePrompt(text, "chat")],
        vocabulary or byte_vocabulary(),
        max_prompt_tokens=longest,
        max_new_tokens=max_new_tokens,
        context=context,
    )
    return prompt


def test_a_prompt_that_fits_is_left_alone():
    prompt = prepared("hello", 100)
    assert (prompt.text, prompt.is_cut) == ("hello", False)
    assert list(prompt.token_ids) == byte_vocabulary().encode("hello", raw=False)[1]


@pytest.mark.parametrize("longest", [40, 60, 100])
@pytest.mark.parametrize("vocabulary", [byte_vocabulary(), Vocabulary(llama2_tokenizer())], ids=["template", "raw"])
def test_a_long_one_loses_its_beginning_and_nothing_of_its_template(vocabulary, longest):
    prompt = prepared(LONG, longest, vocabulary)
    assert prompt.is_cut and LONG.endswith(prompt.text)
    assert longest - 6 <= len(prompt.token_ids) <= longest
    templated, ids = vocabulary.encode(prompt.text, raw=False)
    assert list(prompt.token_ids) == ids
    if vocabulary.tokenizer.chat_template:
        assert templated.startswith("<|im_start|>user") and templated.endswith("<|im_start|>assistant\n")


def test_the_answer_has_room_in_the_context():
    assert len(prepared(LONG, 512, max_new_tokens=30, context=128).token_ids) <= 98
    with pytest.raises(BadRequest, match="holds 128 tokens"):
        prepared(LONG, 512, max_new_tokens=128, context=128)


def test_a_limit_below_the_template_is_refused():
    with pytest.raises(BadRequest, match="may have 5 tokens here"):
        prepared(LONG, 5)


def test_spaces_alone_are_never_what_is_left():
    prompt = prepared("a" * 200 + " " * 50, 40)
    assert prompt.text.strip() == "a" * len(prompt.text.strip()) != ""


def test_the_text_for_a_perplexity_has_no_template():
    prompt = prepared("hello world", 100)
    ids = untemplated(prompt, byte_vocabulary())
    assert byte_vocabulary().decode(ids) == "hello world"
