"""What happens when a control is used. Everything that arrives is checked here; nobody can skip it.

Errors reach the visitor as one sentence on the stage, and whatever was on the stage stays there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from specviz.config import SURE_OF_THEMSELVES
from specviz.errors import BadRequest, SpecVizError
from specviz.presets import Preset, find_pair
from specviz.trace.reader import read_trace
from specviz.ui.address import Linked, read_link
from specviz.ui.controls import OWN_DRAFTER_CHOICES, auto_control, drafter_choices, k_control, precision_control
from specviz.ui.conversation import ConversationBook
from specviz.ui.live_run import UNEXPECTED, LiveRun, Notify, RunLike, RunRegistry
from specviz.ui.messages import message
from specviz.ui.recordings import Recording, recording_messages
from specviz.ui.run_request import OWN_PAIR, RunRequest, control_values, recorded_values, request_from

RunFactory = Callable[[RunRequest, Notify], RunLike]


PRESS_RUN = "**Press Run to watch it.** Until then the stage shows what was there before."
INCOMPLETE = "This trace is incomplete: it ends before the run did."


class Handlers:
    """The page's handlers over one registry of runs.

    Args:
        run_factory: makes the run that a request asks for, loading what is missing.
        recordings, lessons: by name, what can be chosen.
        allow_own: whether visitors may open model folders of this machine.
    """

    def __init__(
        self,
        run_factory: RunFactory,
        recordings: tuple[Recording, ...],
        lessons: tuple[Preset, ...],
        allow_own: bool = False,
    ) -> None:
        self.registry = RunRegistry()
        self._conversations = ConversationBook()
        self._allow_own = allow_own
        self._run_factory = run_factory
        self._recordings = {recording.name: recording for recording in recordings}
        self._lessons = {lesson.name: lesson for lesson in lessons}

    def begin(self) -> str:
        """At the press of Run: a word that something happens."""
        return message(_new_id(), 0, note="Waiting for its turn")

    def run(self, values: dict[str, Any], request: gr.Request, is_follow_up: bool = False) -> Iterator[str]:
        """Messages of the run that the controls' values ask for, as they come.

        Args:
            is_follow_up: the prompt is the next turn of the session's conversation; else a new one begins.
        """
        session = session_of(request)
        try:
            wanted = request_from(values, self._allow_own)
            if is_follow_up and wanted.raw:
                raise BadRequest("A raw prompt is no turn of a conversation: press Run, or turn Raw prompt off.")
        except SpecVizError as error:
            self.registry.cancel(session)  # the stage has turned away from it
            yield refusal(error)
            return
        talk = self._conversations.of(session) if is_follow_up else self._conversations.begin(session)
        wanted = replace(wanted, conversation=None if wanted.raw else talk)
        live = LiveRun(_new_id(), lambda notify: self._run_factory(wanted, notify))
        self.registry.register(session, live)
        yield from live.messages()
        talk.note_turn(wanted.prompt, live.events_from(0))

    def broke_off(self) -> str:
        """A run ended in a way that nobody foresaw."""
        return message(_new_id(), 0, done=True, error=UNEXPECTED)

    def stop(self, request: gr.Request) -> None:
        """Cancels the session's own run; its last events still come through `run`."""
        self.registry.cancel(session_of(request))

    def leave(self, request: gr.Request) -> None:
        """The page was closed."""
        self.registry.forget(session_of(request))
        self._conversations.forget(session_of(request))

    def missing_events(self, payload: Any) -> str | None:
        """Events that did not arrive, for the stage: {"run": id, "from": number} -> a message, or None."""
        if not isinstance(payload, dict) or not isinstance(payload.get("from"), int):
            return None
        run, seq = self.registry.find(payload.get("run")), payload["from"]
        if run is None or seq < 0:
            return None
        return message(run.run_id, seq, run.events_from(seq))

    def open_recording(self, name: str) -> Iterator[str]:
        """A recorded run of the gallery."""
        if name in self._recordings:
            yield from recording_messages(self._recordings[name].events, name)

    def open_file(self, path: str | None) -> Iterator[str]:
        """A trace that a visitor brings, checked in full."""
        if path is None:
            return
        try:
            trace = read_trace(path)
        except SpecVizError as error:
            yield refusal(error, "file")
            return
        yield from recording_messages(trace, error=INCOMPLETE if trace.is_incomplete else "")

    def open_address(self, text: str, defaults: dict[str, Any]) -> tuple[str | None, Linked]:
        """What a link asks for, and what the stage should show for it (None: leave it)."""
        shown_by = {name: self.values_of_recording(name, defaults) for name in self._recordings}
        linked = read_link(text, self._lessons, shown_by, defaults, self._num_rounds())
        problem, forget = " ".join(linked.problems), "&".join(linked.refused)
        if linked.recording is not None:
            events = self._recordings[linked.recording].events
            about_link = {"error": problem, "refused": "link", "forget": forget} if problem else {}
            return "".join(recording_messages(events, linked.recording, **about_link)), linked
        return refusal(BadRequest(problem), "link", forget=forget) if problem else None, linked

    def _num_rounds(self) -> dict[str, int]:
        return {
            name: sum(event["type"] == "round" for event in recording.events)
            for name, recording in self._recordings.items()
        }

    def values_of_recording(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        """What the controls show for a recording of the gallery: what was asked then."""
        return recorded_values(self._recordings[name].events[0], values)

    def choose_lesson(self, name: str) -> tuple[str, dict[str, Any]]:
        """A lesson's sentence with a hint how to see it, and what it sets each control to."""
        lesson = self._lessons[name]
        return f"{lesson.lesson}\n\n{PRESS_RUN}", control_values(lesson, lesson.pair)

    def choose_pair(self, name: str, drafter: str) -> dict[str, Any]:
        """The drafters that a pair has; the chosen one stays where it can."""
        choices = OWN_DRAFTER_CHOICES if name == OWN_PAIR else drafter_choices(find_pair(name))
        kinds = [kind for _, kind in choices]
        return gr.update(choices=choices, value=drafter if drafter in kinds else kinds[0])

    def choose_drafter(self, pair: str, drafter: str, precision: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The precisions that a drafter's weights may have (the chosen one stays where it can), and its k auto."""
        no_auto = {} if drafter in SURE_OF_THEMSELVES else {"value": False}
        return gr.update(**precision_control(pair, drafter, precision)), gr.update(**auto_control(drafter), **no_auto)

    def choose_best_k(self, drafter: str, is_k_chosen: bool) -> dict[str, Any]:
        """k auto for a drafter that a visitor turns to, unless they have said what k should be."""
        return gr.skip() if is_k_chosen else gr.update(value=drafter in SURE_OF_THEMSELVES)

    def choose_auto(self, is_auto: bool) -> dict[str, Any]:
        """What the number of k is good for."""
        return gr.update(**k_control(is_auto))


def refusal(error: SpecVizError, what: str = "run", **more: str) -> str:
    """A message with the sentence of an error about a run, a file or a link, and no events; `more` as in `message`."""
    return message(_new_id(), 0, done=True, error=str(error), refused=what, **more)


def session_of(request: gr.Request) -> str:
    """The browser page that asks."""
    return request.session_hash or ""


def _new_id() -> str:
    return secrets.token_hex(8)
