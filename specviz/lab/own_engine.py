"""Our engine as `bench` runs it: a `Run` for each prompt, its events counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specviz.engine.draft_facts import DRAFT_KINDS
from specviz.errors import RunFailed
from specviz.events import Event, Round
from specviz.lab.engines import LOOKUP_FIRST_ENGINES, OWN_ENGINES, Generation, Setup, own_settings
from specviz.metrics import fold_metrics

if TYPE_CHECKING:
    from specviz.engine.loader import ModelPair


class OwnEngine:
    """One of `OWN_ENGINES`; `facts` says what it runs on.

    Raises:
        SpecVizError: the models cannot be loaded, or do not fit together.
    """

    def __init__(self, name: str, setup: Setup) -> None:
        self._setup = setup
        self._drafter, self._looks_up_first = OWN_ENGINES[name], name in LOOKUP_FIRST_ENGINES
        self._pair = load_own_pair(setup, with_draft=self._drafter in DRAFT_KINDS)
        self.facts = {**own_facts(self._pair), "draft": self._draft_name()}

    def _draft_name(self) -> str | None:
        """What runs beside the target, also where it is a shipped draft that nobody named."""
        draft = self._pair.draft_for(self._drafter)
        return None if draft is None else draft.name

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        from specviz.runs import Run

        settings = own_settings(
            self._drafter, self._setup, request["max_new_tokens"], lookup_first=self._looks_up_first
        )
        run = Run(self._pair, request["text"], settings)
        if run.prompt["token_ids"] != request["token_ids"]:
            raise RunFailed("The prompt was split into other tokens than those that all engines are given.")
        return read_generation(list(run)).to_dict()


def load_own_pair(setup: Setup, *, with_draft: bool) -> ModelPair:
    """The bench's models through the door that every run uses.

    Args:
        with_draft: load the draft that was named; those that are shipped are loaded when they are first run.
    """
    from specviz.engine.loader import load_pair

    return load_pair(
        setup.target,
        setup.draft if with_draft else None,
        device=setup.device,
        dtype=setup.dtype,
        draft_precision=setup.draft_precision,
        revision=setup.revision,
        draft_revision=setup.draft_revision if with_draft else None,
    )


def own_facts(pair: ModelPair) -> dict[str, Any]:
    """What the target runs on: precision of the weights, device, threads."""
    import torch

    return {
        "precision": getattr(pair.target, "precision", str(pair.target.dtype).removeprefix("torch.")),
        "device": str(pair.target.device),
        "threads": torch.get_num_threads(),
    }


def read_generation(events: list[Event]) -> Generation:
    """The figures of a finished run; raises RunFailed if it failed."""
    last = events[-1]
    if last["type"] != "run_finished":
        raise RunFailed(last.get("error", "The run ended without an answer."))
    rounds = [event for event in events if event["type"] == "round"]
    drafted = [0] * (1 + max(len(event["draft"]) for event in rounds))
    for event in rounds:
        drafted[len(event["draft"])] += 1
    fold = fold_metrics(rounds)
    return Generation(
        token_ids=last["token_ids"],
        timed_tokens=len(last["token_ids"]),
        seconds=last["seconds"]["rounds"],
        first_token_seconds=last["seconds"]["prefill"] + sum(rounds[0]["seconds"].values()),
        rounds=len(rounds),
        draft_steps=sum(map(draft_steps, rounds)),
        drafted=drafted,
        accepted=fold.accepted_by_position,
        judged=fold.judged_by_position,
    )


def draft_steps(event: Round) -> int:
    """Steps of the drafter in a round: one a drafted token that was not looked up, and the one that found nothing to say."""
    if event["draft"] and event["draft"][0].get("looked_up"):
        return 0
    return len(event["draft"]) or int(event["draft_stop"] == "confidence")
