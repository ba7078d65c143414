"""The shape of each event of trace v1, as tables of field -> check.

The same rules for other people's tools stand in `trace-v1.schema.json`; a test keeps the two alike.
What one field demands of another, and one event of the next, is in `consistency.py`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import get_args

from specviz.events import ExtraKind, FinishReason, Mode, TokenStatus
from specviz.metrics import COUNT_NAMES
from specviz.trace.checks import (
    Check,
    anything,
    flag,
    hex_bytes,
    list_of,
    mapping_of,
    nullable,
    one_of,
    real,
    record,
    text,
    tuple_of,
    whole,
)
from specviz.trace.limits import TraceLimits

DRAFT_STOPS = ("confidence", "eos", "context", "budget", "no_match")
RUN_SECONDS = ("prefill", "rounds", "waiting", "total")
ROUND_SECONDS = ("draft", "verify", "other")

MAX_SAFE_INTEGER = 2**53 - 1  # the largest that JavaScript reads without loss
PROBABILITY = nullable(real(0, 1.000001))  # float32 sums of probabilities may end a little above 1
UNIT = nullable(real(0, 1))
CONFIDENCE = real(-1, 1)  # a cosine may be below 0
SECONDS = real(0, 1e9)
MEASURE = real(0, 1e308)
TOKEN_ID = whole(0, 2**31 - 1)
COUNT = whole(0, MAX_SAFE_INTEGER)
POSITIONS = whole(0, 2**31 - 1)
NAME = text(1000)


@lru_cache(maxsize=8)
def event_checks(limits: TraceLimits) -> dict[str, Check]:
    """Event type -> the check of a whole event of that type."""
    shapes = _Shapes(limits)
    tables = {
        "run_started": shapes.run_started(),
        "prefill": shapes.prefill(),
        "round": shapes.round(),
        "draft_token": shapes.draft_token_drawn(),
        "run_finished": shapes.run_finished(),
        "run_failed": ({"error": shapes.long_text, "round": nullable(COUNT)}, {"t": SECONDS}),
        "identity": shapes.identity(),
    }
    return {
        name: shapes.object({"type": one_of(name), **required}, optional)
        for name, (required, optional) in tables.items()
    }


Table = tuple[dict[str, Check], dict[str, Check]]  # required fields, optional fields


class _Shapes:
    """The tables, for one set of limits."""

    def __init__(self, limits: TraceLimits):
        self.limits = limits
        self.unknown = anything(limits.max_text, limits.max_unknown_items, limits.max_depth)
        self.long_text = text(limits.max_text)
        self.token_text = text(limits.max_token_text)
        self.prompt_ids = list_of(TOKEN_ID, limits.max_tokens)
        self.new_ids = list_of(nullable(TOKEN_ID), limits.max_tokens)
        self.free_object = mapping_of(NAME, self.unknown, 1000)
        self.top = nullable(list_of(tuple_of(TOKEN_ID, self.token_text, PROBABILITY), limits.max_top))
        self.token = {"id": nullable(TOKEN_ID), "text": nullable(self.token_text)}
        self.token_marks = {"bytes": hex_bytes(limits.max_token_text), "special": flag}

    def object(self, required: dict[str, Check], optional: dict[str, Check] | None = None) -> Check:
        return record(required, optional or {}, self.unknown)

    def all_of(self, names: tuple[str, ...], check: Check) -> Check:
        return self.object(dict.fromkeys(names, check))

    def run_started(self) -> Table:
        prompt = self.object(
            {
                "text": self.long_text,
                "templated": self.long_text,
                "token_ids": self.prompt_ids,
                "pieces": list_of(self.token_text, self.limits.max_tokens),
                "reused": POSITIONS,
            },
            {
                "raw": flag,
                "system": self.long_text,
                "history": list_of(self.object({"role": NAME, "content": self.long_text}), self.limits.max_tokens),
                "earlier": POSITIONS,
                "special": list_of(POSITIONS, self.limits.max_tokens),
                "bytes": mapping_of(text(10), hex_bytes(self.limits.max_token_text), self.limits.max_tokens),
            },
        )
        target = self.object(
            {
                "name": NAME,
                **dict.fromkeys(("revision", "dtype", "device"), nullable(NAME)),
                **dict.fromkeys(("num_layers", "num_params", "kv_bytes_per_position"), nullable(COUNT)),
            },
            dict.fromkeys(("weight_bytes", "max_positions"), nullable(COUNT)),
        )
        required = {
            "schema": one_of(1),
            "run_id": NAME,
            "created": NAME,
            "mode": one_of(*get_args(Mode)),
            "prompt": prompt,
            "target": target,
            "drafter": self.object({"kind": NAME, "name": nullable(NAME)}),
            "settings": self.free_object,
            "versions": mapping_of(NAME, nullable(NAME), 1000),
        }
        return required, {"early_exit": self.early_exit()}

    def early_exit(self) -> Check:
        heads = {"kind": NAME, "name": NAME, "cut_vocab_size": COUNT, "num_params": COUNT}
        return self.object(
            {
                "run": one_of("timed", "map"),
                "measure": NAME,
                "threshold": nullable(CONFIDENCE),
                "threshold_decay": MEASURE,
                "min_layer": COUNT,
                "exit_layers": list_of(COUNT, self.limits.max_layers),
                "heads": self.object(heads),
            }
        )

    def prefill(self) -> Table:
        parts = ("target", "draft")
        required = {
            "seconds": self.all_of(parts, nullable(SECONDS)),
            "cache": self.all_of(parts, nullable(POSITIONS)),
            "committed": self.new_ids,
        }
        return required, {"t": SECONDS}

    def round(self) -> Table:
        cache = nullable(self.object({**dict.fromkeys(("before", "peak", "after"), POSITIONS), "bytes": COUNT}))
        required = {
            "round": whole(1, self.limits.max_events),
            "t": SECONDS,
            "draft": list_of(self.draft_token(), self.limits.max_draft),
            "draft_stop": nullable(one_of(*DRAFT_STOPS)),
            "extra": nullable(self.extra_token()),
            "committed": list_of(nullable(TOKEN_ID), self.limits.max_draft + 1),
            "cache": self.object({"target": cache, "draft": cache}, {"shared_layers": COUNT}),
            "seconds": self.all_of(ROUND_SECONDS, nullable(SECONDS)),
        }
        return required, {"exit": self.token_exit(), "map": self.layer_map()}

    def token_exit(self) -> Check:
        return self.object(
            {
                "layer": COUNT,
                "confidences": list_of(CONFIDENCE, self.limits.max_layers),
                "threshold": nullable(CONFIDENCE),
                "head_seconds": SECONDS,
            }
        )

    def layer_map(self) -> Check:
        def a_layer(check: Check) -> Check:
            return list_of(nullable(check), self.limits.max_layers)

        measures = {name: a_layer(CONFIDENCE) for name in ("top1", "gap", "saturation")}
        return self.object(
            {
                "measures": self.object({**measures, "entropy": a_layer(MEASURE)}),
                "ids": a_layer(TOKEN_ID),
                "texts": a_layer(self.token_text),
            }
        )

    def draft_token(self) -> Check:
        probabilities = (
            "draft_prob",
            "target_prob",
            "draft_tail",
            "target_tail",
            "draft_prob_used",
            "target_prob_used",
        )
        return self.object(
            {**self.token, "status": one_of(*get_args(TokenStatus))},
            {
                **self.token_marks,
                "looked_up": flag,
                **dict.fromkeys(probabilities, PROBABILITY),
                **dict.fromkeys(("draft_top", "target_top"), self.top),
                **dict.fromkeys(("accept_prob", "u"), UNIT),
            },
        )

    def extra_token(self) -> Check:
        return self.object(
            {**self.token, "kind": one_of(*get_args(ExtraKind))},
            {
                **self.token_marks,
                **dict.fromkeys(("draft_prob", "target_prob", "target_tail", "residual_tail"), PROBABILITY),
                **dict.fromkeys(("target_top", "residual_top"), self.top),
                "u": UNIT,
            },
        )

    def draft_token_drawn(self) -> Table:
        token = self.object(
            self.token, {**self.token_marks, "looked_up": flag, "draft_prob": PROBABILITY, "draft_top": self.top}
        )
        index = whole(0, self.limits.max_draft - 1)
        return {"round": whole(1, self.limits.max_events), "index": index, "t": SECONDS, "token": token}, {}

    def run_finished(self) -> Table:
        required = {
            "reason": one_of(*get_args(FinishReason)),
            "token_ids": self.new_ids,
            "text": self.long_text,
            "output_text": self.long_text,
            "counts": self.all_of(COUNT_NAMES, COUNT),
            "metrics": self.free_object,
            "seconds": self.all_of(RUN_SECONDS, nullable(SECONDS)),
        }
        return required, {"t": SECONDS}

    def identity(self) -> Table:
        token_text = nullable(self.token_text)
        first_difference = self.object(
            {
                "position": POSITIONS,
                "ids": tuple_of(nullable(TOKEN_ID), nullable(TOKEN_ID)),
                "texts": tuple_of(token_text, token_text),
                "top2_gap": nullable(MEASURE),
                "dtype": NAME,
            }
        )
        optional = {
            "t": SECONDS,
            "why": self.long_text,
            "first_difference": first_difference,
            "plain_seconds": self.all_of(RUN_SECONDS, nullable(SECONDS)),
            "plain_tokens_per_second": nullable(MEASURE),
            "again_tokens_per_second": nullable(MEASURE),
            "common_prefix": POSITIONS,
            "same_share": UNIT,
        }
        return {"against": one_of("plain"), "identical": nullable(flag)}, optional
