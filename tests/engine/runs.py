"""Short ways to run the engine in a test, and to read what it did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from transformers import PreTrainedModel

from specviz.config import RunSettings
from specviz.drafters import make_drafter
from specviz.drafters.base import Drafter
from specviz.engine.hf_model import TransformersModel
from specviz.engine.language_model import LanguageModel
from specviz.engine.speculative import decode
from specviz.engine.vocabulary import Vocabulary
from specviz.events import Event
from tests.tiny_models import tiny_draft_of, tiny_model
from tests.tiny_tokenizers import byte_level_tokenizer

DRAFTING = ("draft_model", "prompt_lookup", "early_exit")


@cache
def byte_vocabulary() -> Vocabulary:
    return Vocabulary(byte_level_tokenizer())


@cache
def tiny_target(family: str = "llama") -> TransformersModel:
    return TransformersModel(tiny_model(family), f"tiny {family}")


@cache
def tiny_draft(family: str = "llama") -> TransformersModel:
    return TransformersModel(tiny_draft_of(family), f"noisy {family}")


def run_events(
    target: LanguageModel,
    prompt_ids: Sequence[int],
    *,
    vocabulary: Vocabulary | None = None,
    drafter: Drafter | None = None,
    draft: LanguageModel | None = None,
    eos_token_ids: Sequence[int] = (),
    engine: dict[str, Any] | None = None,
    **settings,
) -> list[Event]:
    """All events of one run. `drafter` is the object itself; `settings["drafter_kind"]` one to be made.

    Args:
        engine: further arguments of `decode`.
    """
    settings.setdefault("trace_detail", "none")
    kind = settings.pop("drafter_kind", "none")
    run_settings = RunSettings(drafter=kind, eos_token_ids=tuple(eos_token_ids), **settings)
    if drafter is None:
        drafter = make_drafter(target, draft, run_settings)
    return list(
        decode(
            target,
            drafter,
            prompt_ids,
            vocabulary or byte_vocabulary(),
            run_settings,
            eos_token_ids=frozenset(eos_token_ids),
            **engine or {},
        )
    )


def assert_lossless(
    target: LanguageModel,
    draft: LanguageModel,
    kind: str,
    k: int | str,
    texts: Iterable[tuple[Sequence[int], list[int]]],
) -> None:
    """Every prompt is answered with the ids that are known to be right, and on the way drafts are accepted and rejected.

    Args:
        texts: (ids of a prompt, the new ids of plain decoding) each.
    """
    counts = dict.fromkeys(("accepted", "rejected"), 0)
    for prompt_ids, plain_ids in texts:
        events = run_events(
            target,
            prompt_ids,
            draft=draft,
            drafter_kind=kind,
            num_draft_tokens=k,
            draft_threshold=0.05,
            exit_layer=2,
            min_ngram=1,
            max_new_tokens=len(plain_ids),
        )
        assert new_ids(events) == plain_ids, prompt_ids
        for count in counts:
            counts[count] += finished(events)["counts"][count]
    assert all(counts.values()), "without acceptances and rejections it proves nothing"


def new_ids(events: list[Event]) -> list[int]:
    return finished(events)["token_ids"]


def finished(events: list[Event]) -> dict[str, Any]:
    assert events[-1]["type"] == "run_finished"
    return events[-1]


def rounds(events: list[Event]) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == "round"]


def statuses(round_event: dict[str, Any]) -> list[str]:
    return [token["status"] for token in round_event["draft"]]


def generate_ids(model: PreTrainedModel, prompt_ids: Sequence[int], max_new_tokens: int, **kwargs) -> list[int]:
    """The new ids of transformers' own greedy `generate`: the oracle."""
    prompt = torch.tensor([list(prompt_ids)])
    kwargs.setdefault("eos_token_id", None)
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        pad_token_id=0,
        **kwargs,
    )
    return output[0, len(prompt_ids) :].tolist()
