"""The events of a run: small, append-only, JSON-plain. Trace v1 is one of them a line.

These types say what each event holds; the wire rules stand in `trace/trace-v1.schema.json`.
A key under `NotRequired` is absent where it was not recorded (`trace_detail`) or does not apply;
a null was not computed. Times are seconds, monotonic from the run's start.

Runs with mode `served` may have null ids, texts, seconds and caches in their rounds: a server does not
say everything. All other runs have them.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

SCHEMA_VERSION = 1

Mode = Literal["plain", "speculative", "early_exit", "served"]
TokenStatus = Literal["accepted", "rejected", "discarded", "cut"]
ExtraKind = Literal["correction", "bonus", "plain"]
FinishReason = Literal["eos", "stop", "length", "context", "cancelled", "deadline"]
TopEntry = list[Any]  # [id, text of the id on its own, probability]; a list, as JSON has no tuples


class Token(TypedDict):
    """A token and the characters that it completes in its place.

    `text` may be empty (its bytes wait for the rest of a character, and are in `bytes` as hex).
    """

    id: int
    text: str
    bytes: NotRequired[str]
    special: NotRequired[bool]


class DraftToken(Token):
    """One drafted token and its verdict.

    `draft_prob`, `target_prob`, the top lists (the five most probable) and the tails (the mass of all
    others): the models' own distributions after penalties and suppression, at temperature 1. `*_used`, `accept_prob`, `u`: as in the rejection test, after
    temperature, top-k and top-p; null when greedy. For `discarded` and `cut` tokens all that the
    target says is null. `looked_up`: found in the text, before a draft model or head was asked.
    """

    status: TokenStatus
    looked_up: NotRequired[bool]
    draft_prob: NotRequired[float | None]
    target_prob: NotRequired[float | None]
    draft_top: NotRequired[list[TopEntry] | None]
    draft_tail: NotRequired[float | None]
    target_top: NotRequired[list[TopEntry] | None]
    target_tail: NotRequired[float | None]
    draft_prob_used: NotRequired[float | None]
    target_prob_used: NotRequired[float | None]
    accept_prob: NotRequired[float | None]
    u: NotRequired[float | None]


class ExtraToken(Token):
    """The token that the target itself adds to a round. A correction's `draft_prob` is what the drafter found."""

    kind: ExtraKind
    draft_prob: NotRequired[float | None]
    target_prob: NotRequired[float | None]
    target_top: NotRequired[list[TopEntry] | None]
    target_tail: NotRequired[float | None]
    residual_top: NotRequired[list[TopEntry] | None]
    residual_tail: NotRequired[float | None]
    u: NotRequired[float | None]


class CacheUse(TypedDict):
    """One cache over one round, in positions, and the bytes in use after it."""

    before: int
    peak: int
    after: int
    bytes: int


class Caches(TypedDict):
    """`draft` is null for drafters without a cache of their own; `shared_layers` counts the target
    layers that an early-exit drafter drafts in."""

    target: CacheUse | None
    draft: CacheUse | None
    shared_layers: NotRequired[int]


class Message(TypedDict):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class PromptInfo(TypedDict):
    """The prompt as typed, as the target reads it, and token by token.

    `pieces` are the texts of the ids in their places; `special` are the indices of special tokens;
    `bytes` maps an index (as a string) to hex where a token is a part of a character. `reused`
    positions had their KV kept from an earlier turn. `raw`: no chat template was used.
    `system` and `history` (the earlier turns) are what the template was given besides; the first
    `earlier` ids belong to those turns.
    """

    text: str
    templated: str
    token_ids: list[int]
    pieces: list[str]
    special: NotRequired[list[int]]
    bytes: NotRequired[dict[str, str]]
    reused: int
    raw: NotRequired[bool]
    system: NotRequired[str]
    history: NotRequired[list[Message]]
    earlier: NotRequired[int]


class TargetInfo(TypedDict):
    name: str
    revision: str | None
    dtype: str
    device: str
    num_layers: int
    num_params: int
    kv_bytes_per_position: int
    weight_bytes: NotRequired[int]
    max_positions: NotRequired[int | None]


class ExitHeadsInfo(TypedDict):
    """`cut_vocab_size`: the tokens that confidences are computed over."""

    kind: str
    name: str
    cut_vocab_size: int
    num_params: int


class EarlyExitInfo(TypedDict):
    """How tokens may leave early. `run`: "timed", exits are real; "map", every layer is run and read out.

    `threshold`: null = never. `exit_layers`: after so many layers a token is looked at.
    """

    run: Literal["timed", "map"]
    measure: str
    threshold: float | None
    threshold_decay: float
    min_layer: int
    exit_layers: list[int]
    heads: ExitHeadsInfo


class RunStarted(TypedDict):
    type: Literal["run_started"]
    schema: int
    run_id: str
    created: str
    mode: Mode
    prompt: PromptInfo
    target: TargetInfo
    drafter: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]
    check: NotRequired[bool]
    early_exit: NotRequired[EarlyExitInfo]


class Prefill(TypedDict):
    """Feeds all of the prompt but its last token."""

    type: Literal["prefill"]
    t: float
    seconds: dict[Literal["target", "draft"], float]
    cache: dict[Literal["target", "draft"], int | None]
    committed: list[int]


class RoundSeconds(TypedDict):
    """They sum to the round's own wall time (the consumer's time is not in it)."""

    draft: float
    verify: float
    other: float


class TokenExit(TypedDict):
    """How far through the layers a round's one token went.

    `layer`: layers that were run for it (all of them: it did not leave). `confidences`: of the run's measure, one per exit
    layer that was looked at, in order. `threshold`: the one in force. `head_seconds`: in exit heads; part of the round's `other`.
    """

    layer: int
    confidences: list[float]
    threshold: float | None
    head_seconds: float


class LayerMap(TypedDict):
    """What every layer would have said: lists with one entry a layer, the first for layer 1; null where no head reads it.

    `measures`: top1, gap, entropy (in nats), saturation. The last layer's are the model's own.
    """

    measures: dict[str, list[float | None]]
    ids: list[int | None]
    texts: list[str | None]


class Round(TypedDict):
    """Draft, verify, commit, roll back: one target forward.

    `exit`, `map`: of early-exit runs, whose rounds are one token each, and of those the map runs.
    """

    type: Literal["round"]
    round: int
    t: float
    draft: list[DraftToken]
    draft_stop: str | None
    extra: ExtraToken | None
    committed: list[int]
    cache: Caches
    seconds: RoundSeconds
    exit: NotRequired[TokenExit]
    map: NotRequired[LayerMap]


class DraftTokenDrawn(TypedDict):
    """Live only: one drafted token as it is drawn, before the target has judged it."""

    type: Literal["draft_token"]
    round: int
    index: int
    t: float
    token: dict[str, Any]


class Counts(TypedDict):
    rounds: int
    drafted: int
    accepted: int
    rejected: int
    discarded: int
    cut: int
    committed: int
    corrections: int
    bonuses: int
    plains: int


class Seconds(TypedDict):
    """`rounds` is the sum of the rounds' own seconds; `waiting` is the time a consumer kept the stream
    waiting, null when the run was ended from outside and nobody measured it."""

    prefill: float
    rounds: float
    waiting: float | None
    total: float


class RunFinished(TypedDict):
    type: Literal["run_finished"]
    t: float
    reason: FinishReason
    token_ids: list[int]
    text: str
    output_text: str
    counts: Counts
    metrics: dict[str, Any]
    seconds: Seconds


class RunFailedEvent(TypedDict):
    type: Literal["run_failed"]
    t: float
    error: str
    round: int


class FirstDifference(TypedDict):
    """Where two runs part: index among the new tokens, what plain decoding says and what this run
    said (null where one had ended), the target's logit gap between its top two there, the dtype."""

    position: int
    ids: list[int | None]
    texts: list[str | None]
    top2_gap: float | None
    dtype: str


class Identity(TypedDict):
    """The comparison with plain decoding, when it was made; comes last.

    Where a difference is a result (early exit): `common_prefix`, tokens up to it, and `same_share`, of this run's tokens those
    that stand at the same place of the plain run.

    `again_tokens_per_second` is this run's own speed, measured once more right after plain decoding, as unwatched as
    that: what a speedup is told by. None is there for a run that decodes plainly.
    """

    type: Literal["identity"]
    t: NotRequired[float]
    against: Literal["plain"]
    identical: bool | None
    why: NotRequired[str]
    first_difference: NotRequired[FirstDifference]
    plain_seconds: NotRequired[Seconds]
    plain_tokens: NotRequired[int]
    common_prefix: NotRequired[int]
    same_share: NotRequired[float]
    plain_tokens_per_second: NotRequired[float | None]
    again_tokens_per_second: NotRequired[float | None]


Event = RunStarted | Prefill | Round | DraftTokenDrawn | RunFinished | RunFailedEvent | Identity
EVENT_TYPES = ("run_started", "prefill", "round", "draft_token", "run_finished", "run_failed", "identity")
