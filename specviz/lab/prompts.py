"""From the prompts of a suite to what every engine is fed: the same token ids, none longer than allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specviz.errors import BadRequest
from specviz.lab.suite import SuitePrompt

if TYPE_CHECKING:
    from specviz.engine.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """A prompt as it is run.

    Attributes:
        text: what is asked, cut to fit.
        token_ids: `text` in the target's chat template (or as it is, for a target without one).
        is_cut: whether the beginning of the suite's text is missing.
    """

    text: str
    category: str
    token_ids: tuple[int, ...]
    is_cut: bool


def prepare(
    prompts: Sequence[SuitePrompt],
    vocabulary: Vocabulary,
    *,
    max_prompt_tokens: int,
    max_new_tokens: int,
    context: int | None,
) -> list[BenchPrompt]:
    """Every prompt in its template, at most `max_prompt_tokens` long and with room for the answer in `context`.

    Raises:
        BadRequest: the limits leave no room for a prompt.
    """
    longest = max_prompt_tokens if context is None else min(max_prompt_tokens, context - max_new_tokens)
    if longest < 1:
        raise BadRequest(
            f"max-new-tokens is {max_new_tokens}, but the target holds {context} tokens with the prompt: ask for fewer."
        )
    return [_prepare_one(prompt, vocabulary, longest) for prompt in prompts]


def untemplated(prompt: BenchPrompt, vocabulary: Vocabulary) -> list[int]:
    """The ids of the prompt's text alone, no longer than those in the template: ordinary text, for a perplexity."""
    return vocabulary.encode(prompt.text, raw=True)[1][: len(prompt.token_ids)]


def _prepare_one(prompt: SuitePrompt, vocabulary: Vocabulary, longest: int) -> BenchPrompt:
    """Cuts the text from the left, and never the template: what stays is a whole turn of a conversation.

    The question of a prompt mostly stands at its end. Where to cut is found by bisection over the characters.
    """
    text = prompt.prompt
    ids = vocabulary.encode(text, raw=False)[1]
    if len(ids) <= longest:
        return BenchPrompt(text, prompt.category, tuple(ids), is_cut=False)
    too_long, fits = 0, len(text) - 1
    while fits - too_long > 1:
        middle = (too_long + fits) // 2
        if _num_tokens(text[middle:], vocabulary) > longest:
            too_long = middle
        else:
            fits = middle
    text = text[fits:] if text[fits:].strip() else text.strip()[-1]
    ids = vocabulary.encode(text, raw=False)[1]
    if len(ids) > longest:
        raise BadRequest(
            f"A prompt may have {longest} tokens here, and the template of an all but empty one has {len(ids)}: "
            "allow more prompt tokens, or ask for fewer new ones."
        )
    return BenchPrompt(text, prompt.category, tuple(ids), is_cut=True)


def _num_tokens(text: str, vocabulary: Vocabulary) -> int:
    return len(vocabulary.encode(text, raw=False)[1]) if text.strip() else 0
