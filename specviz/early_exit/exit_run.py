"""`ExitRun`: one early-exit run from prompt to finished trace, as `specviz.runs.Run` is one plain or speculative run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from specviz.config import RunSettings
from specviz.early_exit.exit_settings import ExitSettings
from specviz.events import Event, Message, RunStarted
from specviz.runs import Run

if TYPE_CHECKING:
    from specviz.engine.clock import RunClock
    from specviz.engine.loader import ModelPair

ExitRunKind = Literal["timed", "map"]


class ExitRun(Run):
    """Iterate once: the events come as they happen; then read `result`.

    Args:
        settings: those of drafting mean nothing here.
        kind: "timed": exits are real, the layers after one are not run. "map": every layer is run and read out, and
            the text is plain decoding's.
        raw, system, history, check: as in `Run`.

    Raises:
        BadRequest: on construction, for settings, prompts and targets that cannot be run.
    """

    def __init__(
        self,
        pair: ModelPair,
        prompt: str,
        settings: RunSettings | None = None,
        exits: ExitSettings | None = None,
        *,
        kind: ExitRunKind = "timed",
        raw: bool = False,
        system: str | None = None,
        history: Sequence[Message] = (),
        check: bool = False,
    ) -> None:
        from specviz.early_exit.exit_plan import ExitPlan
        from specviz.engine.layerwise import require_layerwise

        settings = replace(settings or RunSettings(), drafter="none")
        super().__init__(pair, prompt, settings, raw=raw, system=system, history=history, check=check)
        require_layerwise(pair.target, "mode is 'early_exit'")
        self.mode, self.kind, self.exits = "early_exit", kind, exits or ExitSettings()
        heads = pair.exit_heads.get(pair.target, self.exits.heads)
        self.plan = ExitPlan.of(self.exits, heads, pair.target, settings.max_new_tokens)

    @property
    def draws_as_plain(self) -> bool:
        return self.kind == "map"

    def _started(self) -> RunStarted:
        return {**super()._started(), "early_exit": self.plan.describe(self.kind)}

    def _decoding(self, settings: RunSettings, clock: RunClock, *, is_watched: bool) -> Iterator[Event]:
        from specviz.early_exit.exit_decoding import ExitDecodingRun
        from specviz.early_exit.map_decoding import MapRun
        from specviz.engine.kv_memory import KVMemory
        from specviz.engine.speculative import events_of

        # A memory of its own: keys and values of tokens that left early are not the target's.
        memory = KVMemory()
        run = {"timed": ExitDecodingRun, "map": MapRun}[self.kind](
            self.plan,
            self.pair.target,
            None,
            list(self.prompt["token_ids"]),
            self.pair.vocabulary,
            settings,
            self._eos,
            self._cancelled.is_set,
            memory,
            clock,
        )
        return events_of(run, memory)
