"""Builds small valid traces for tests, of every status, kind of extra token, detail and end."""

from __future__ import annotations

import copy
import json
from typing import Any

from specviz.metrics import MetricsFold, fold_metrics

PROMPT_PIECES = ["<|im_start|>", "Once", " upon"]
KV_BYTES_PER_POSITION = 46_080


class TraceBuilder:
    """Grows a consistent trace: ids, committed tokens, caches, times and counts follow by themselves.

        build = TraceBuilder()
        build.round(accepted=[" a"], rejected=" b", discarded=[" c"], extra=" d")
        build.finish("length")
        build.events

    Args:
        detail: what `trace_detail` leaves in: full, light (no top lists), none (no probabilities).
        sampled: with the numbers of the rejection test, else null as in a greedy run.
    """

    def __init__(self, detail: str = "full", mode: str = "speculative", sampled: bool = False):
        self.detail, self.mode, self.sampled = detail, mode, sampled
        self.events: list[dict[str, Any]] = []
        self.ids: dict[str, int] = {}
        self.token_ids: list[int] = []
        self.texts: list[str] = []
        self.fold = MetricsFold()
        self.t = 0.0
        self._start()
        self.fold.add(self.events[0])
        self._prefill()

    def round(
        self,
        accepted: list[str] = (),
        rejected: str | None = None,
        discarded: list[str] = (),
        cut: list[str] = (),
        extra: str | None = None,
        draft_stop: str | None = None,
        live: bool = False,
        exit_layer: int | None = None,
        layer_map: dict[str, Any] | None = None,
        **extra_fields: Any,
    ) -> TraceBuilder:
        """One round; `extra_fields` go into the extra token (bytes, special); of an early-exit run with its
        `exit_layer`, and with a `layer_map` if it is a map."""
        number = self.fold.counts["rounds"] + 1
        draft = [self._draft_token(text, "accepted") for text in accepted]
        draft += [self._draft_token(rejected, "rejected")] if rejected is not None else []
        draft += [self._draft_token(text, "discarded") for text in discarded]
        draft += [self._draft_token(text, "cut") for text in cut]
        if live:
            for index, token in enumerate(draft):
                drawn = {"id": token["id"], "text": token["text"], "draft_prob": token.get("draft_prob")}
                self._add("draft_token", round=number, index=index, t=self._tick(0.001), token=drawn)
        kind = "correction" if rejected is not None else "bonus" if draft else "plain"
        extra_token = None if extra is None else {**self._extra_token(extra, kind), **extra_fields}
        committed = [t for t in draft if t["status"] == "accepted"] + ([extra_token] if extra_token else [])
        before = len(PROMPT_PIECES) + len(self.token_ids) - 1
        self.token_ids += [token["id"] for token in committed]
        self.texts += [token["text"] for token in committed]
        self._add(
            "round",
            round=number,
            t=self._tick(0.041),
            draft=draft,
            draft_stop=draft_stop,
            extra=extra_token,
            committed=[token["id"] for token in committed],
            cache={
                "target": self._cache(before, before + 1 + len(draft)),
                "draft": self._cache(before, before + max(1, len(draft))) if self.mode == "speculative" else None,
            },
            seconds={"draft": 0.01, "verify": 0.029, "other": 0.002},
        )
        if exit_layer is not None:
            confidence = 0.75 if exit_layer == 1 else 0.5
            left = {"layer": exit_layer, "confidences": [confidence], "threshold": 0.6, "head_seconds": 0.001}
            self.events[-1]["exit"] = left
        if layer_map is not None:
            self.events[-1]["map"] = layer_map
        self.fold.add(self.events[-1])
        return self

    def finish(self, reason: str = "length") -> TraceBuilder:
        text = "".join(self.texts)
        self._add(
            "run_finished",
            t=self._tick(0.001),
            reason=reason,
            token_ids=list(self.token_ids),
            text=text,
            output_text=text,
            counts=copy.deepcopy(self.fold.counts),
            metrics=copy.deepcopy(self.fold.metrics()),
            seconds={
                "prefill": 0.1,
                "rounds": 0.041 * self.fold.counts["rounds"],
                "waiting": 0.0,
                "total": self.t,
            },
        )
        return self

    def fail(self, error: str = "The device ran out of memory: use a shorter prompt.") -> TraceBuilder:
        self._add("run_failed", t=self._tick(0.001), error=error, round=self.fold.counts["rounds"] + 1)
        return self

    def identity(self, identical: bool | None, **fields: Any) -> TraceBuilder:
        self._add("identity", against="plain", identical=identical, **fields)
        return self

    def _start(self) -> None:
        token_ids = [self._id(piece) for piece in PROMPT_PIECES]
        self._add(
            "run_started",
            schema=1,
            run_id="sample",
            created="2025-01-02T03:04:05Z",
            mode=self.mode,
            prompt={
                "text": "Once upon",
                "templated": "".join(PROMPT_PIECES),
                "token_ids": token_ids,
                "pieces": list(PROMPT_PIECES),
                "special": [0],
                "reused": 0,
            },
            target={
                "name": "tiny",
                "revision": None,
                "dtype": "float32",
                "device": "cpu",
                "num_layers": 2,
                "num_params": 1000,
                "kv_bytes_per_position": KV_BYTES_PER_POSITION,
            },
            drafter={"kind": "draft_model" if self.mode == "speculative" else "none", "name": "tinier"},
            settings={"num_draft_tokens": 4, "temperature": 0.8 if self.sampled else 0.0, "seed": 2**63 - 1},
            versions={"specviz": "0.1.0"},
        )

    def _prefill(self) -> None:
        cached = len(PROMPT_PIECES) - 1
        self._add(
            "prefill",
            t=self._tick(0.1),
            seconds={"target": 0.08, "draft": 0.02},
            cache={"target": cached, "draft": cached if self.mode == "speculative" else None},
            committed=[],
        )

    def _add(self, type_: str, **fields: Any) -> None:
        self.events.append({"type": type_, **fields})

    def _tick(self, seconds: float) -> float:
        self.t += seconds
        return self.t

    def _id(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids))

    def _cache(self, before: int, peak: int) -> dict[str, int]:
        after = min(peak, len(PROMPT_PIECES) + len(self.token_ids) - 1)
        return {"before": before, "peak": peak, "after": after, "bytes": after * KV_BYTES_PER_POSITION}

    def _top(self, text: str) -> list[list[Any]]:
        return [[self._id(text), text, 0.625], [self._id(" other"), " other", 0.25]]

    def _draft_token(self, text: str, status: str) -> dict[str, Any]:
        token: dict[str, Any] = {"id": self._id(text), "text": text, "status": status}
        judged = status in ("accepted", "rejected")
        used = judged and self.sampled
        if self.detail != "none":
            token |= {
                "draft_prob": 0.625,
                "target_prob": 0.5 if judged else None,
                "draft_prob_used": 0.75 if self.sampled else None,
                "target_prob_used": 0.375 if used else None,
                "accept_prob": 0.5 if used else None,
                "u": (0.25 if status == "accepted" else 0.875) if used else None,
            }
        if self.detail == "full":
            token |= {
                "draft_top": self._top(text),
                "draft_tail": 0.125,
                "target_top": self._top(text) if judged else None,
                "target_tail": 0.125 if judged else None,
            }
        return token

    def _extra_token(self, text: str, kind: str) -> dict[str, Any]:
        token: dict[str, Any] = {"id": self._id(text), "text": text, "kind": kind}
        if self.detail != "none":
            token |= {"target_prob": 0.5, "u": 0.125 if self.sampled else None}
        if self.detail == "full":
            has_residual = kind == "correction" and self.sampled
            token |= {
                "target_top": self._top(text),
                "target_tail": 0.125,
                "residual_top": self._top(text) if has_residual else None,
                "residual_tail": 0.125 if has_residual else None,
            }
        return token


FIRST_DIFFERENCE = {
    "position": 2,
    "ids": [7, None],
    "texts": [" cat", None],
    "top2_gap": 0.0012,
    "dtype": "bfloat16",
}


def story(detail: str = "full", sampled: bool = False, live: bool = False) -> TraceBuilder:
    """Rounds of every kind, not ended yet: correction, bonus, plain, all rejected, bytes."""
    build = TraceBuilder(detail, sampled=sampled)
    build.round([" the", " quick", " brown"], " fox", [" jumps"], extra=" dog", live=live)
    build.round([" ran", " far"], extra=" away", live=live)
    build.round(extra=".", draft_stop="no_match", live=live)
    build.round([], " So", [" it", " went"], extra="", bytes="f09f", live=live)
    return build


def early_exit_trace(run: str = "timed", num_tokens: int = 2) -> list[dict[str, Any]]:
    """At most two tokens of a model of two layers; the first leaves after one, if the run is timed."""
    build = TraceBuilder(mode="early_exit")
    build.events[0]["early_exit"] = {
        "run": run,
        "measure": "top1",
        "threshold": 0.6,
        "threshold_decay": 0.0,
        "min_layer": 1,
        "exit_layers": [1],
        "heads": {"kind": "plain", "name": "final norm and output head", "cut_vocab_size": 3, "num_params": 0},
    }
    by_layer = {"top1": [0.75, 0.5], "gap": [0.5, 0.25], "entropy": [0.3, 0.9], "saturation": [None, 0.97]}
    layer_map = {"measures": by_layer, "ids": [5, 3], "texts": [" b", " a"]} if run == "map" else None
    for text, exit_layer in [(" a", 2 if run == "map" else 1), (" b", 2)][:num_tokens]:
        build.round(extra=text, exit_layer=exit_layer, layer_map=layer_map)
    return build.finish("length" if num_tokens else "cancelled").events


def all_traces() -> dict[str, list[dict[str, Any]]]:
    """Name -> events of a valid trace, one of each sort."""
    traces = {
        "greedy": story().finish("length").identity(True, plain_tokens_per_second=21.5),
        "sampled": story(sampled=True).finish("length").identity(None, why="the run was sampled"),
        "light": story("light").finish("length"),
        "none": story("none", sampled=True).finish("length"),
        "live": story(live=True).finish("length"),
        "eos_inside_the_draft": story().round([" a", "<|im_end|>"], cut=[" x", " y"]).finish("eos"),
        "eos_at_the_end_of_the_draft": story().round([" a", "<|im_end|>"]).finish("eos"),
        "eos_as_bonus": story().round([" a"], extra="<|im_end|>", special=True).finish("eos"),
        "stop_string": story().round(["\n"], cut=["\n"]).finish("stop"),
        "context": story().round(extra=" z", draft_stop="context").finish("context"),
        "deadline": story().finish("deadline"),
        "cancelled_before_the_first_round": TraceBuilder().finish("cancelled"),
        "failed": story().fail(),
        "different": story().finish("length").identity(False, first_difference=FIRST_DIFFERENCE),
        "plain": TraceBuilder(mode="plain").round(extra=" a").round(extra=" b").finish("length"),
        "unicode": TraceBuilder()
        .round([" naïve", ""], "한", ["국"], extra="👩\u200d🚀")
        .round(["\u2028", "\x85", "\x00"], extra="\u202e<b>[bold]")
        .finish("length"),
    }
    others = {
        "early_exit": early_exit_trace(),
        "early_exit_map": early_exit_trace("map"),
        "early_exit_without_a_token": early_exit_trace(num_tokens=0),
        "served": served_trace(),
    }
    return {**{name: build.events for name, build in traces.items()}, **others}


def served_trace() -> list[dict[str, Any]]:
    """A server that says how many tokens it drafted, and neither which nor how long it took."""
    build = TraceBuilder(detail="none", mode="served")
    build.events[0]["prompt"] |= {"token_ids": [], "pieces": [], "special": []}
    build.events[0]["target"] |= {"num_layers": None, "num_params": None, "kv_bytes_per_position": None}
    build.events[1]["seconds"] = {"target": 0.3, "draft": None}
    build.events[1]["cache"] = {"target": None, "draft": None}
    build.events[1]["committed"] = [99]
    build.token_ids = [99]
    build.round([" a"], " b", [" c"], extra=" d")
    build.round(extra=" e")
    for event in build.events[2:]:
        for token in event["draft"]:
            token |= {"id": None, "text": None}
        event["committed"][:-1] = [None] * (len(event["committed"]) - 1)
        event["seconds"] = dict.fromkeys(event["seconds"])
        event["cache"] = {"target": None, "draft": None}
    build.token_ids[1] = None
    build.fold = fold_metrics(build.events)
    build.finish("length")
    build.events[-1]["seconds"] = {"prefill": 0.3, "rounds": None, "waiting": None, "total": 1.0}
    return build.events


def to_lines(events: list[dict[str, Any]]) -> bytes:
    """The events as the bytes of a trace, by a plain JSON writer."""
    return "".join(json.dumps(event) + "\n" for event in events).encode()
