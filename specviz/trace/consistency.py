"""What the fields of a trace demand of each other: within a round, and from event to event."""

from __future__ import annotations

from typing import Any

from specviz.events import Event, Round, RunFinished, RunStarted
from specviz.metrics import MetricsFold
from specviz.trace.checks import Malformed, shown
from specviz.trace.exit_consistency import ExitCheck

VERDICTS_OF_THE_TARGET = ("target_prob", "target_top", "target_tail", "target_prob_used", "accept_prob", "u")


class StoryCheck:
    """Follows a trace from its first event; raises `Malformed` where the story does not hold together.

    The order is: run_started, prefill (where there was one), rounds counted from 1, one end, and after
    run_finished at most one identity.
    """

    def __init__(self) -> None:
        self.is_served = False
        self.num_rounds = 0
        self.end: str | None = None  # the type of the end event, once it came
        self._last: str | None = None
        self._last_t = 0.0
        self._token_ids: list[int | None] = []
        self._fold = MetricsFold()
        self._exits: ExitCheck | None = None

    def add(self, event: Event) -> None:
        """Check the next event, whose own shape is already known to be right."""
        type_ = event["type"]
        if (type_ == "run_started") != (self._last is None):
            raise Malformed(f"is {type_}, but run_started comes first and only once", "type")
        if self._last == "identity":
            raise Malformed(f"is {type_}, but nothing comes after identity", "type")
        if self.end is not None and not (type_ == "identity" and self.end == "run_finished"):
            raise Malformed(f"is {type_}, but the run had ended with {self.end}", "type")
        getattr(self, f"_add_{type_}")(event)
        self._last = type_

    def _add_run_started(self, event: RunStarted) -> None:
        self.is_served = event["mode"] == "served"
        _check_prompt(event, self.is_served)
        self._exits = ExitCheck(event)

    def _add_prefill(self, event: dict[str, Any]) -> None:
        if self._last != "run_started":
            raise Malformed("is prefill, but prefill comes once, before the first round", "type")
        if not self.is_served and event["committed"]:
            raise Malformed("has tokens, which only a server commits at prefill", "committed")
        self._check_time(event)
        self._token_ids += event["committed"]

    def _add_draft_token(self, event: dict[str, Any]) -> None:
        self._check_round_number(event)
        self._check_time(event)

    def _add_round(self, event: Round) -> None:
        self._check_round_number(event)
        self._check_time(event)
        if not self.is_served:
            _check_all_known(event)
        check_round(event)
        self._exits.check(event)
        self.num_rounds += 1
        self._token_ids += event["committed"]
        self._fold.add(event)

    def _add_run_finished(self, event: RunFinished) -> None:
        self._check_time(event)
        if event["token_ids"] != self._token_ids:
            raise Malformed("are not the tokens that the rounds committed", "token_ids")
        for name, count in self._fold.counts.items():
            if event["counts"][name] != count:
                raise Malformed(f"is {event['counts'][name]}, but the rounds add up to {count}", "counts", name)
        self.end = "run_finished"

    def _add_run_failed(self, event: dict[str, Any]) -> None:
        self.end = "run_failed"

    def _add_identity(self, event: dict[str, Any]) -> None:
        if self.end is None:
            raise Malformed("is identity, which comes after run_finished", "type")
        if event["identical"] is False and "first_difference" not in event:
            raise Malformed("is missing, though identical is false", "first_difference")
        if event["identical"] is True and "first_difference" in event:
            raise Malformed("is given, though identical is true", "first_difference")
        if event["identical"] is None and "why" not in event:
            raise Malformed("is missing, though identical is null", "why")

    def _check_round_number(self, event: dict[str, Any]) -> None:
        if event["round"] != self.num_rounds + 1:
            raise Malformed(f"is {event['round']}, but the next round is {self.num_rounds + 1}", "round")

    def _check_time(self, event: dict[str, Any]) -> None:
        time = event.get("t", self._last_t)
        if time < self._last_t:
            raise Malformed(f"is {time}, earlier than the {self._last_t} before it", "t")
        self._last_t = time


def check_round(event: Round) -> None:
    """The rules inside one round: order of statuses, the extra's kind, what was committed, the caches."""
    statuses = [token["status"] for token in event["draft"]]
    _check_status_order(statuses)
    _check_void_verdicts(event)
    _check_extra(event, statuses)
    _check_committed(event)
    for name in ("target", "draft"):
        cache = event["cache"][name]
        for moment in ("before", "after") if cache else ():
            if cache[moment] > cache["peak"]:
                raise Malformed(f"is {cache[moment]}, above the peak of {cache['peak']}", "cache", name, moment)


def _check_prompt(event: RunStarted, is_served: bool) -> None:
    prompt = event["prompt"]
    num_tokens = len(prompt["token_ids"])
    if num_tokens == 0 and not is_served:
        raise Malformed("is empty, but a run starts from at least one token", "prompt", "token_ids")
    if len(prompt["pieces"]) != num_tokens:
        raise Malformed(f"has {len(prompt['pieces'])} entries for {num_tokens} tokens", "prompt", "pieces")
    if prompt["reused"] > num_tokens:
        raise Malformed(f"is {prompt['reused']}, more than the {num_tokens} tokens", "prompt", "reused")
    for place, index in enumerate(prompt.get("special", ())):
        if index >= num_tokens:
            raise Malformed(f"is {index}, beyond the {num_tokens} tokens", "prompt", "special", place)
    for key in prompt.get("bytes", ()):
        if not (key.isascii() and key.isdigit() and int(key) < num_tokens):
            raise Malformed(f"has the key {shown(key)}, not the index of a token", "prompt", "bytes")


def _check_all_known(event: Round) -> None:
    """Only a server may leave ids, texts and times of its drafts unsaid."""
    tokens = [("draft", index, token) for index, token in enumerate(event["draft"])]
    if event["extra"] is not None:
        tokens.append(("extra", None, event["extra"]))
    for part, index, token in tokens:
        for name in ("id", "text"):
            if token[name] is None:
                raise Malformed("is null, which only served runs may have", *_place(part, index), name)
    for part, seconds in event["seconds"].items():
        if seconds is None:
            raise Malformed("is null, which only served runs may have", "seconds", part)


def _check_status_order(statuses: list[str]) -> None:
    """accepted*, and then either nothing, or rejected discarded*, or cut*."""
    may_follow = {
        None: ("accepted", "rejected"),
        "accepted": ("accepted", "rejected", "cut"),
        "rejected": ("discarded",),
        "discarded": ("discarded",),
        "cut": ("cut",),
    }
    before = None
    for index, status in enumerate(statuses):
        if status not in may_follow[before]:
            place = f"after {before}" if before else "at the start of a draft"
            raise Malformed(
                f"is {status} {place}, where only {' or '.join(may_follow[before])} may come", "draft", index, "status"
            )
        before = status


def _check_void_verdicts(event: Round) -> None:
    for index, token in enumerate(event["draft"]):
        if token["status"] in ("discarded", "cut"):
            for name in VERDICTS_OF_THE_TARGET:
                if token.get(name) is not None:
                    raise Malformed(f"is given, but a {token['status']} token was never judged", "draft", index, name)


def _check_extra(event: Round, statuses: list[str]) -> None:
    last = statuses[-1] if statuses else None
    if event["extra"] is None:
        if last not in ("accepted", "cut"):
            raise Malformed("is null, which is only so when generation stopped inside the accepted part", "extra")
        return
    if last == "cut":
        raise Malformed("is given, though generation stopped inside the accepted part", "extra")
    kind = {None: "plain", "accepted": "bonus"}.get(last, "correction")
    if event["extra"]["kind"] != kind:
        raise Malformed(f"is {event['extra']['kind']}, but this draft makes it a {kind}", "extra", "kind")


def _check_committed(event: Round) -> None:
    expected = [token["id"] for token in event["draft"] if token["status"] == "accepted"]
    if event["extra"] is not None:
        expected.append(event["extra"]["id"])
    if event["committed"] != expected:
        raise Malformed("is not the accepted tokens and the extra one", "committed")


def _place(part: str, index: int | None) -> tuple[str | int, ...]:
    return (part,) if index is None else (part, index)
