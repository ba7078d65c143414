"""Scripted runs for the page's tests: valid events of every kind, without a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from specviz.config import RunSettings

KV_BYTES = 23_040


def token(token_id: int, text: str, **more: Any) -> dict[str, Any]:
    """A token object of the trace."""
    return {"id": token_id, "text": text, **more}


def top(token_id: int, text: str, prob: float) -> list[list[Any]]:
    """Five most probable tokens, with the given one first."""
    rest = [[900 + i, word, round((1 - prob) / (i + 2), 4)] for i, word in enumerate((" the", " a", ".", ","))]
    return [[token_id, text, prob], *rest]


def drafted(token_id: int, text: str, status: str, draft_prob: float | None = 0.8, **more: Any) -> dict[str, Any]:
    """A drafted token with its verdict; what the target says is null where it was not asked."""
    judged = status in ("accepted", "rejected")
    target_prob = {"accepted": 0.9, "rejected": 0.07}.get(status)
    favourite = (token_id, text, 0.9) if status == "accepted" else (501, " dog", 0.62)
    return {
        **token(token_id, text),
        "status": status,
        "draft_prob": draft_prob,
        "target_prob": target_prob,
        "draft_top": None if draft_prob is None else top(token_id, text, draft_prob),
        "target_top": top(*favourite) if judged else None,
        "draft_prob_used": None,
        "target_prob_used": None,
        "accept_prob": None,
        "u": None,
        **more,
    }


def extra(kind: str, token_id: int, text: str, **more: Any) -> dict[str, Any]:
    """The token the target adds."""
    return {
        **token(token_id, text), "kind": kind, "target_prob": 0.62, "target_top": top(token_id, text, 0.62),
        "residual_top": None, "u": None, **more,
    }  # fmt: skip


def started(
    prompt: str = "Say it", settings: RunSettings | None = None, drafter: str = "draft_model", **more: Any
) -> dict:
    """The first event of a run."""
    settings = settings or RunSettings(drafter="prompt_lookup")
    pieces = ["<|im_start|>", "user", "\n", prompt, "<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"]
    return {
        "type": "run_started",
        "schema": 1,
        "run_id": "fake-run",
        "created": "2026-01-02T03:04:05+00:00",
        "mode": "speculative",
        "prompt": {
            "text": prompt, "templated": "".join(pieces), "token_ids": list(range(1, len(pieces) + 1)),
            "pieces": pieces, "special": [0, 4, 6], "reused": 0,
        },
        "target": {
            "name": "fake-target", "revision": None, "dtype": "float32", "device": "cpu", "num_layers": 2,
            "num_params": 1000, "kv_bytes_per_position": KV_BYTES,
        },
        "drafter": {"kind": drafter, "name": drafter},
        "settings": settings.to_dict(),
        "versions": {"specviz": "0.1.0"},
        **more,
    }  # fmt: skip


def prefill(num_prompt: int = 9, has_draft_cache: bool = True) -> dict[str, Any]:
    """The second event of a run."""
    return {
        "type": "prefill", "t": 0.02, "seconds": {"target": 0.015, "draft": 0.005},
        "cache": {"target": num_prompt - 1, "draft": num_prompt - 1 if has_draft_cache else None}, "committed": [],
    }  # fmt: skip


def round_event(
    number: int,
    length: int,
    draft: Sequence[dict],
    extra_token: dict | None,
    *,
    has_draft_cache: bool = True,
    draft_stop: str | None = None,
) -> dict[str, Any]:
    """A round over a text of `length` committed tokens, its caches following from its draft."""
    accepted = [t for t in draft if t["status"] == "accepted"]
    committed = [t["id"] for t in accepted] + ([extra_token["id"]] if extra_token else [])
    before, after = length - 1, length - 1 + len(committed)
    peak = before + 1 + len(draft)
    draft_peak = before + max(0, len(draft))
    return {
        "type": "round",
        "round": number,
        "t": 0.1 * number,
        "draft": list(draft),
        "draft_stop": draft_stop,
        "extra": extra_token,
        "committed": committed,
        "cache": {
            "target": {"before": before, "peak": peak, "after": min(after, peak), "bytes": after * KV_BYTES},
            "draft": {"before": before, "peak": draft_peak, "after": min(after, draft_peak), "bytes": after * 4096}
            if has_draft_cache
            else None,
        },
        "seconds": {"draft": 0.012, "verify": 0.06, "other": 0.002},
    }


def finished(rounds: Sequence[dict], reason: str = "length") -> dict[str, Any]:
    """The end of a run, with its text and raw counts."""
    statuses = [t["status"] for r in rounds for t in r["draft"]]
    kinds = [r["extra"]["kind"] for r in rounds if r["extra"]]
    ids = [i for r in rounds for i in r["committed"]]
    return {
        "type": "run_finished",
        "t": 0.1 * len(rounds),
        "reason": reason,
        "token_ids": ids,
        "text": "",
        "output_text": "",
        "counts": {
            "rounds": len(rounds), "drafted": len(statuses), "committed": len(ids),
            **{s: statuses.count(s) for s in ("accepted", "rejected", "discarded", "cut")},
            "corrections": kinds.count("correction"), "bonuses": kinds.count("bonus"), "plains": kinds.count("plain"),
        },
        "metrics": {},
        "seconds": {"prefill": 0.02, "rounds": 0.074 * len(rounds), "waiting": 0.0, "total": 0.1 * len(rounds)},
    }  # fmt: skip


# One round a line: drafted words with their status, and the extra token.
STORY: tuple[tuple[list[tuple[str, str]], tuple[str, str] | None], ...] = (
    (
        [(" quick", "accepted"), (" brown", "accepted"), (" fox", "accepted"), (" jumps", "accepted")],
        ("bonus", " over"),
    ),
    (
        [(" the", "accepted"), (" lazy", "accepted"), (" cat", "rejected"), (" sat", "discarded")],
        ("correction", " dog"),
    ),
    ([], ("plain", ".")),
    ([(" And", "rejected"), (" then", "discarded"), (" it", "discarded"), (" ran", "discarded")], ("correction", "\n")),
    ([(" So", "accepted"), (" it", "accepted"), (" goes", "accepted")], ("bonus", ",")),
)
LAST_ROUND = ([(" on", "accepted"), ("<|im_end|>", "accepted"), (" more", "cut"), (" yet", "cut")], None)


def story_rounds(
    num_rounds: int, num_prompt: int = 9, *, ends_inside_draft: bool = True, has_draft_cache: bool = True
) -> list[dict]:
    """`num_rounds` rounds that show every status and every kind of extra token."""
    length, rounds, next_id = num_prompt, [], 100
    for number in range(1, num_rounds + 1):
        script = LAST_ROUND if ends_inside_draft and number == num_rounds else STORY[(number - 1) % len(STORY)]
        words, last = script
        draft = [drafted(next_id + i, text, status, 0.95 - 0.13 * i) for i, (text, status) in enumerate(words)]
        for one in draft:
            if one["text"].startswith("<|"):
                one["special"] = True
        next_id += len(draft) + 1
        stop = "no_match" if not words else None
        event = round_event(
            number,
            length,
            draft,
            last and extra(last[0], next_id, last[1]),
            has_draft_cache=has_draft_cache,
            draft_stop=stop,
        )
        length += len(event["committed"])
        rounds.append(event)
    return rounds


def story(
    num_rounds: int = 12, prompt: str = "Say it", settings: RunSettings | None = None, identity: bool = True
) -> list[dict[str, Any]]:
    """The events of a whole run."""
    rounds = story_rounds(num_rounds)
    events = [started(prompt, settings), prefill(), *rounds, finished(rounds, "eos")]
    if identity:
        events.append({"type": "identity", "against": "plain", "identical": True, "plain_tokens_per_second": 21.5})
    return events


class FakeRun:
    """Looks like `specviz.runs.Run`: iterates events, can be cancelled from another thread.

    Args:
        events: what it yields; a cancelled run ends with `run_finished` of reason "cancelled".
        delay: seconds before each round.
    """

    def __init__(self, events: Sequence[dict[str, Any]], delay: float = 0.0) -> None:
        self.events, self.delay = list(events), delay
        self.was_cancelled = threading.Event()
        self.was_closed = threading.Event()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rounds = []
        try:
            for event in self.events:
                if event["type"] == "round":
                    if self.was_cancelled.wait(self.delay):
                        yield finished(rounds, "cancelled")
                        return
                    rounds.append(event)
                yield event
        finally:
            self.was_closed.set()

    def cancel(self) -> None:
        self.was_cancelled.set()


def wait_until(condition, seconds: float = 10.0) -> None:
    """Waits for a state, not for a time; fails when it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the awaited state did not come"
        time.sleep(0.005)
