"""One run from prompt to finished trace: the door that the command line, the page and the API use."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from specviz import __version__
from specviz.config import RunSettings
from specviz.errors import BadRequest, SpecVizError
from specviz.events import SCHEMA_VERSION, Event, Identity, Message, RunFinished, RunStarted
from specviz.trace.summary import SummaryFold

if TYPE_CHECKING:
    from specviz.early_exit.exit_heads import ExitHeads
    from specviz.engine.clock import RunClock
    from specviz.engine.kv_memory import KVMemory
    from specviz.engine.lazy_drafts import Draft
    from specviz.engine.loader import ModelPair


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run. `text` is for a reader (no special tokens, nothing from a stop string on);
    `identity` is None unless it was checked; `error` is None unless the run failed."""

    text: str
    token_ids: list[int]
    reason: str | None
    counts: dict[str, Any]
    metrics: dict[str, Any]
    seconds: dict[str, float]
    identity: dict[str, Any] | None
    error: str | None = None


class Run:
    """One generation. Iterate once: the events come as they happen; then read `result`.

    Args:
        raw: give the prompt as it is, without the chat template.
        system: a system message for the chat template.
        history: the earlier turns of the conversation, user and assistant in turn.
        check: afterwards decode plainly too, and compare (adds an `identity` event).
        live_drafts: also yield each drafted token as it is drawn.
        memory: the caches of earlier turns of a conversation, for this and the next run.

    Raises:
        BadRequest: on construction, for settings and prompts that cannot be run.
    """

    def __init__(
        self,
        pair: ModelPair,
        prompt: str,
        settings: RunSettings | None = None,
        *,
        raw: bool = False,
        system: str | None = None,
        history: Sequence[Message] = (),
        check: bool = False,
        live_drafts: bool = False,
        memory: KVMemory | None = None,
    ) -> None:
        from specviz.drafters import make_drafter
        from specviz.engine.speculative import check_request
        from specviz.engine.tokens import prompt_info

        settings = settings or RunSettings()
        for token_id in settings.eos_token_ids or ():
            if token_id >= pair.vocabulary.size:
                raise BadRequest(
                    f"End token id {token_id} does not exist: the vocabulary ends at {pair.vocabulary.size - 1}."
                )
        eos = pair.eos_token_ids if settings.eos_token_ids is None else frozenset(settings.eos_token_ids)
        self.settings = replace(settings, eos_token_ids=tuple(sorted(eos)))
        self.pair = pair
        self._eos, self._check, self._live_drafts = eos, check, live_drafts
        templated, ids = pair.vocabulary.encode(prompt, raw=raw, system=system, history=history)
        self.prompt = prompt_info(pair.vocabulary, prompt, templated, ids)
        self.prompt["raw"] = raw or not pair.vocabulary.tokenizer.chat_template
        if system:
            self.prompt["system"] = system
        if history:
            self.prompt["history"] = list(history)
            self.prompt["earlier"] = pair.vocabulary.num_earlier_tokens(ids, system, history)
        check_request(pair.target, ids, pair.vocabulary, self.settings, eos)
        self._memory = memory
        self.drafter = make_drafter(pair.target, _what_drafts(pair, settings), settings)
        if memory is not None:
            self.prompt["reused"] = self._reusable(memory, ids)
        self.mode = "speculative" if self.drafter else "plain"
        self._cancelled = threading.Event()
        self._summary = SummaryFold()
        self._has_begun = False

    def _reusable(self, memory: KVMemory, prompt_ids: Sequence[int]) -> int:
        """Positions of the target's KV that are used again; a drafter of features has to hold them too."""
        from specviz.drafters.base import draft_model_of

        reusable = memory.reusable(self.pair.target, prompt_ids)
        if self.drafter is None or not self.drafter.feature_layers:
            return reusable
        return min(reusable, memory.reusable(draft_model_of(self.drafter), prompt_ids))

    def __iter__(self) -> Iterator[Event]:
        if self._has_begun:
            raise RuntimeError("a Run is iterated once; make a new one to run again")
        self._has_begun = True
        for event in self._all_events():
            self._summary.add(event)
            yield event

    def cancel(self) -> None:
        """Stop soon, from any thread: the run finishes with the reason `cancelled`."""
        self._cancelled.set()

    @property
    def result(self) -> RunResult:
        """What is known so far; `reason` is None until the run has finished."""
        return RunResult(**self._summary.summary())

    @property
    def draws_as_plain(self) -> bool:
        """Whether every token is drawn from the target's own distribution, with the dice that plain decoding throws."""
        return self.mode == "plain"

    def _all_events(self) -> Iterator[Event]:
        from specviz.engine.clock import RunClock

        clock = RunClock()
        num_rounds, finished = 0, None
        yield from clock.hand_over(self._started())
        try:
            for event in self._decoding(self.settings, clock, is_watched=True):
                num_rounds += event["type"] == "round"
                finished = event if event["type"] == "run_finished" else None
                yield event
        except Exception as error:
            yield {"type": "run_failed", "t": clock.elapsed, "error": _sentence(error), "round": num_rounds + 1}
            if not isinstance(error, SpecVizError):
                raise
        if self._check and finished:
            yield self._identity(finished)

    def _decoding(self, settings: RunSettings, clock: RunClock, *, is_watched: bool) -> Iterator[Event]:
        """The run's events with these settings; one that nobody watches shares nothing with the conversation."""
        from specviz.engine.speculative import decode

        return decode(
            self.pair.target,
            self.drafter,
            self.prompt["token_ids"],
            self.pair.vocabulary,
            settings,
            eos_token_ids=self._eos,
            is_cancelled=self._cancelled.is_set,
            live_drafts=self._live_drafts and is_watched,
            memory=self._memory if is_watched else None,
            clock=clock,
        )

    def _once_more(self, settings: RunSettings) -> Iterator[Event]:
        from specviz.engine.clock import RunClock

        return self._decoding(settings, RunClock(), is_watched=False)

    def _identity(self, finished: RunFinished) -> Identity:
        """The comparison; a run that has finished well stays finished, also if comparing it fails."""
        from specviz.engine.identity import compare_with_plain

        try:
            return compare_with_plain(
                self.pair,
                self.prompt["token_ids"],
                self.settings,
                self._eos,
                finished,
                self._cancelled.is_set,
                run_again=None if self.draws_as_plain else self._once_more,
                may_differ=self.mode == "early_exit",
                draws_as_plain=self.draws_as_plain,
            )
        except Exception as error:
            return {"type": "identity", "against": "plain", "identical": None, "why": _sentence(error)}

    def _started(self) -> RunStarted:
        target = self.pair.target
        return {
            "type": "run_started",
            "schema": SCHEMA_VERSION,
            "run_id": uuid.uuid4().hex[:12],
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "mode": self.mode,
            "prompt": self.prompt,
            "target": {
                "name": target.name,
                "revision": target.revision,
                "dtype": str(target.dtype).removeprefix("torch."),
                "device": str(target.device),
                "num_layers": target.num_layers,
                "num_params": target.num_params,
                "kv_bytes_per_position": target.kv_bytes_per_position,
                "weight_bytes": target.weight_bytes,
                "max_positions": target.max_positions,
            },
            "drafter": self.drafter.describe() if self.drafter else {"kind": "none", "name": "none"},
            "settings": self.settings.to_dict(),
            "versions": {"specviz": __version__, "torch": _version("torch"), "transformers": _version("transformers")},
            "check": self._check,
        }


def _what_drafts(pair: ModelPair, settings: RunSettings) -> Draft | ExitHeads | None:
    """What the drafter of these settings runs beside the target."""
    if settings.most_draft_tokens == 0:
        return None
    if settings.drafter == "early_exit":
        from specviz.engine.layerwise import require_layerwise

        require_layerwise(pair.target, "drafter is 'early_exit'")
        return pair.exit_heads.get(pair.target, settings.exit_heads)
    return pair.draft_for(settings.drafter)


def _sentence(error: Exception) -> str:
    if isinstance(error, SpecVizError):
        return str(error)
    if "out of memory" in str(error).lower() or isinstance(error, MemoryError):
        return "The device ran out of memory: shorten the prompt or the answer, or choose a smaller model or dtype."
    return f"The run broke off ({type(error).__name__}: {error})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
