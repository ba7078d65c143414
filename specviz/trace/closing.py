"""The end of a run that did not come to its own end: worked out from the events that there are."""

from __future__ import annotations

from specviz.errors import SpecVizError
from specviz.events import Event, RunFailedEvent, RunFinished, Token
from specviz.metrics import MetricsFold


class RunSoFar:
    """What a stream of events has said; can write the end event that the stream itself still owes.

    A run that is stopped from outside (Ctrl-C, a closed page, a consumer that went away) cannot yield its
    own end any more; whoever records it can.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.has_ended = False
        self._fold = MetricsFold()
        self._token_ids: list[int] = []
        self._texts: list[str] = []
        self._output_texts: list[str] = []
        self._prefill_seconds: float | None = 0.0
        self._t = 0.0

    def add(self, event: Event) -> None:
        """Take in the next event of the run."""
        self._t = event.get("t", self._t)
        match event["type"]:
            case "run_started":
                self.has_begun = True
                self._fold.add(event)
            case "prefill":
                self._token_ids += event["committed"]
                self._prefill_seconds = sum(event["seconds"][part] or 0.0 for part in ("target", "draft"))
            case "round":
                self._fold.add(event)
                self._token_ids += event["committed"]
                for token in committed_tokens(event):
                    self._texts.append(token["text"] or "")
                    self._output_texts.append("" if token.get("special") else token["text"] or "")
            case "run_finished" | "run_failed":
                self.has_ended = True

    def cancelled(self) -> RunFinished:
        """`run_finished` with reason `cancelled`; `waiting` is null, as nobody measured it."""
        seconds = self._fold.seconds
        return RunFinished(
            type="run_finished",
            t=self._t,
            reason="cancelled",
            token_ids=list(self._token_ids),
            text="".join(self._texts),
            output_text="".join(self._output_texts),
            counts=self._fold.counts,
            metrics=self._fold.metrics(),
            seconds={
                "prefill": self._prefill_seconds,
                "rounds": sum(seconds.values()) if seconds is not None else None,
                "waiting": None,
                "total": self._t,
            },
        )

    def failed(self, error: BaseException) -> RunFailedEvent:
        """`run_failed` for an error that came out of the run."""
        written_for_users = isinstance(error, SpecVizError)
        return RunFailedEvent(
            type="run_failed",
            t=self._t,
            error=str(error) if written_for_users else f"The run stopped at an unexpected {type(error).__name__}.",
            round=self._fold.counts["rounds"] + 1,
        )


def committed_tokens(event: Event) -> list[Token]:
    """The tokens that a round committed, in order: the accepted ones and the extra one."""
    tokens: list[Token] = [token for token in event["draft"] if token["status"] == "accepted"]
    return tokens if event["extra"] is None else [*tokens, event["extra"]]
