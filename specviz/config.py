"""`RunSettings`: everything that decides what one run does, checked once, at the door.

A value, not a service: frozen, comparable, JSON-plain through `to_dict`, which is what a trace
stores so that the run can be done again.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from specviz.errors import BadRequest

DRAFTER_KINDS = ("draft_model", "prompt_lookup", "early_exit", "draft_head", "none")
EXIT_HEADS = ("auto", "translators", "plain")
TRACE_DETAILS = ("full", "light", "none")
DTYPES = ("auto", "bfloat16", "float16", "float32")
DRAFT_PRECISIONS = (*DTYPES, "int8", "int4")
MAX_NUM_DRAFT_TOKENS = 64

# Below this a softmax over logits / temperature is one-hot to the last bit of float32, and above
# zero it may overflow on the way: such temperatures mean greedy decoding.
GREEDY_BELOW_TEMPERATURE = 1e-5

# Drafters that draw from a distribution, and so know how sure they are.
SURE_OF_THEMSELVES = ("draft_model", "early_exit", "draft_head")


def default_draft_tokens(drafter: str) -> int | Literal["auto"]:
    """k where nobody says it: "auto" for drafters that know how sure they are, else the number of `RunSettings`."""
    return "auto" if drafter in SURE_OF_THEMSELVES else RunSettings().num_draft_tokens


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How to decode one prompt.

    Attributes:
        drafter: what proposes, one of `DRAFTER_KINDS`; "none" is plain decoding.
        num_draft_tokens: k, draft tokens asked for per round; "auto" drafts one token, and goes on up to
            `max_draft_tokens` while the product of the draft's top probabilities so far, which is how probable it
            holds its whole draft to stand, is at least `draft_threshold`.
        lookup_first: a draft model or head is asked only where prompt_lookup finds nothing.
        exit_layer: E, how many of the target's layers draft (early_exit only); null = a third.
        exit_heads: what reads the drafts out (early_exit only), one of `EXIT_HEADS`; "auto" takes translators where there
            are some for the target.
        max_ngram, min_ngram: longest and shortest suffix that a lookup looks for, in tokens.
        temperature: 0 (or under 1e-5) is greedy.
        top_k: 0 is off. top_p: 1.0 is off. repetition_penalty: 1.0 is off.
        min_new_tokens: end tokens are suppressed before that many new tokens.
        suppress_token_ids: ids that are never generated.
        eos_token_ids: end tokens; null = what the target's generation config says.
        stop: strings that end the text.
        deadline: seconds of wall time from the run's start; null = none.
        trace_detail: "full", "light" (no top lists) or "none" (ids, statuses and times only).

    Raises:
        BadRequest: naming the value, the choices and the remedy.
    """

    drafter: str = "prompt_lookup"
    num_draft_tokens: int | Literal["auto"] = 4
    max_draft_tokens: int = 8
    draft_threshold: float = 0.5
    lookup_first: bool = False
    exit_layer: int | None = None
    exit_heads: str = "auto"
    max_ngram: int = 4
    min_ngram: int = 2
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    max_new_tokens: int = 128
    min_new_tokens: int = 0
    suppress_token_ids: tuple[int, ...] = ()
    eos_token_ids: tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()
    deadline: float | None = None
    trace_detail: str = "full"

    def __post_init__(self) -> None:
        for name in ("suppress_token_ids", "eos_token_ids", "stop"):
            value = getattr(self, name)
            if isinstance(value, (list, set)):
                object.__setattr__(self, name, tuple(value))
            elif not isinstance(value, tuple) and not (name == "eos_token_ids" and value is None):
                raise BadRequest(f"{name} is {value!r}: give a list.")
        _one_of("drafter", self.drafter, DRAFTER_KINDS)
        _one_of("trace_detail", self.trace_detail, TRACE_DETAILS)
        if self.num_draft_tokens != "auto":
            _whole("num_draft_tokens (k)", self.num_draft_tokens, 0, MAX_NUM_DRAFT_TOKENS, 'or "auto"')
        _whole("max_draft_tokens (k-max)", self.max_draft_tokens, 1, MAX_NUM_DRAFT_TOKENS)
        _real("draft_threshold", self.draft_threshold, 0.0, 1.0)
        if not isinstance(self.lookup_first, bool):
            raise BadRequest(f"lookup_first is {self.lookup_first!r}: give true or false.")
        if self.exit_layer is not None:
            _whole("exit_layer", self.exit_layer, 1, 10_000)
        _one_of("exit_heads", self.exit_heads, EXIT_HEADS)
        _whole("max_ngram", self.max_ngram, 1, 64)
        _whole("min_ngram", self.min_ngram, 1, self.max_ngram)
        _real("temperature", self.temperature, 0.0, 1000.0)
        _whole("top_k", self.top_k, 0, 10_000_000, "(0 turns it off)")
        _real("top_p", self.top_p, 0.0, 1.0, "(above 0; 1 turns it off)")
        if self.top_p == 0:
            raise BadRequest("top_p is 0, which leaves no token to draw: use a value above 0, or 1 to turn it off.")
        _real("repetition_penalty", self.repetition_penalty, 0.01, 100.0, "(1 turns it off)")
        _whole("seed", self.seed, 0, 2**63 - 1)
        _whole("max_new_tokens", self.max_new_tokens, 1, 1_000_000)
        _whole("min_new_tokens", self.min_new_tokens, 0, self.max_new_tokens, "(not above max_new_tokens)")
        for token_id in (*self.suppress_token_ids, *(self.eos_token_ids or ())):
            _whole("a token id", token_id, 0, 2**31 - 1)
        if isinstance(self.stop, str) or not all(isinstance(s, str) for s in self.stop):
            raise BadRequest(f"stop is {self.stop!r}: give a list of strings.")
        if any(0xD800 <= ord(char) <= 0xDFFF for s in self.stop for char in s):
            raise BadRequest("A stop string has a lone surrogate, which no text has: remove it.")
        if any(s == "" for s in self.stop):
            raise BadRequest(
                "A stop string is empty, and would end every text at once: give it at least one character."
            )
        if self.deadline is not None:
            _real("deadline", self.deadline, 0.0, 1e7, "seconds")

    @property
    def is_greedy(self) -> bool:
        """Whether every token is the argmax; the test for it is `GREEDY_BELOW_TEMPERATURE`."""
        return self.temperature < GREEDY_BELOW_TEMPERATURE

    @property
    def is_adaptive(self) -> bool:
        """Whether the draft's own confidence decides how long a draft gets."""
        return self.num_draft_tokens == "auto"

    @property
    def most_draft_tokens(self) -> int:
        """The longest draft that any round may ask for."""
        return self.max_draft_tokens if self.num_draft_tokens == "auto" else self.num_draft_tokens

    def to_dict(self) -> dict[str, Any]:
        """All settings as JSON-plain values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSettings:
        """The settings a trace or a preset stored; raises BadRequest on an unknown name."""
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise BadRequest(f"Unknown setting {key!r}: the settings are {', '.join(known)}.")
        return cls(**values)


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadRequest(f"{name} is {value!r}: choose one of {', '.join(choices)}.")


def _whole(name: str, value: object, low: int, high: int, remark: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadRequest(f"{name} is {value!r}: give a whole number from {low} to {high} {remark}".rstrip() + ".")


def _real(name: str, value: object, low: float, high: float, remark: str = "") -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:
        raise BadRequest(f"{name} is {value!r}: give a number from {low:g} to {high:g} {remark}".rstrip() + ".")
