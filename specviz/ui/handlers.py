"""What happens when a control is used. Everything that arrives is checked here; nobody can skip it.

Errors reach the visitor as one sentence on the stage, and whatever was on the stage stays there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from specviz.config import RunSettings
from specviz.errors import BadRequest, SpecVizError
from specviz.presets import Preset, find_pair
from specviz.trace.reader import read_trace
from specviz.ui.controls import MAX_K, MAX_NEW_TOKENS, MAX_PROMPT_CHARS, MAX_SEED, drafter_choices
from specviz.ui.live_run import UNEXPECTED, LiveRun, Notify, RunLike, RunRegistry
from specviz.ui.messages import message
from specviz.ui.model_shelf import RunRequest
from specviz.ui.recordings import Recording, recording_messages

RunFactory = Callable[[RunRequest, Notify], RunLike]


class Handlers:
    """The page's handlers over one registry of runs.

    Args:
        run_factory: makes the run that a request asks for, loading what is missing.
        recordings, lessons: by name, what can be chosen.
    """

    def __init__(self, run_factory: RunFactory, recordings: tuple[Recording, ...], lessons: tuple[Preset, ...]) -> None:
        self.registry = RunRegistry()
        self._run_factory = run_factory
        self._recordings = {recording.name: recording for recording in recordings}
        self._lessons = {lesson.name: lesson for lesson in lessons}

    def begin(self) -> tuple[dict[str, Any], dict[str, Any], str]:
        """At the press of Run: Run off, Stop on, and a word that something happens."""
        return (
            gr.update(interactive=False),
            gr.update(interactive=True),
            message(_new_id(), 0, note="Waiting for its turn"),
        )

    def run(
        self, pair: str, prompt: str, raw: bool, drafter: str, k: float, k_auto: bool, temperature: float,
        max_new_tokens: float, seed: float | None, check: bool, request: gr.Request,
    ) -> Iterator[str]:  # fmt: skip
        """Messages of a run, as they come."""
        try:
            wanted = request_from(pair, prompt, raw, drafter, k, k_auto, temperature, max_new_tokens, seed, check)
        except SpecVizError as error:
            yield refusal(error)
            return
        live = LiveRun(_new_id(), lambda notify: self._run_factory(wanted, notify))
        self.registry.register(session_of(request), live)
        yield from live.messages()

    def broke_off(self) -> str:
        """A run ended in a way that nobody foresaw."""
        return message(_new_id(), 0, done=True, error=UNEXPECTED)

    def stop(self, request: gr.Request) -> None:
        """Cancels the session's own run; its last events still come through `run`."""
        self.registry.cancel(session_of(request))

    def end(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """After a run: Run on, Stop off."""
        return gr.update(interactive=True), gr.update(interactive=False)

    def leave(self, request: gr.Request) -> None:
        """The page was closed."""
        self.registry.forget(session_of(request))

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
            yield from recording_messages(self._recordings[name].events)

    def open_file(self, path: str | None) -> Iterator[str]:
        """A trace that a visitor brings, checked in full."""
        if path is None:
            return
        try:
            trace = read_trace(path)
        except SpecVizError as error:
            yield refusal(error)
            return
        yield from recording_messages(trace)

    def choose_lesson(self, name: str) -> list[Any]:
        """A lesson for the controls: its sentence, prompt, raw, pair, drafter, k, auto, temperature, tokens, seed."""
        lesson = self._lessons[name]
        settings = lesson.run_settings()
        is_auto = settings.is_adaptive
        return [
            lesson.lesson, lesson.prompt, lesson.raw, lesson.pair.name,
            gr.update(choices=drafter_choices(lesson.pair), value=settings.drafter),
            4 if is_auto else max(1, settings.num_draft_tokens), is_auto, settings.temperature,
            min(settings.max_new_tokens, MAX_NEW_TOKENS), settings.seed,
        ]  # fmt: skip

    def choose_pair(self, name: str, drafter: str) -> dict[str, Any]:
        """The drafters that a pair has; the chosen one stays where it can."""
        choices = drafter_choices(find_pair(name))
        kinds = [kind for _, kind in choices]
        return gr.update(choices=choices, value=drafter if drafter in kinds else kinds[0])


def request_from(
    pair: str, prompt: str, raw: bool, drafter: str, k: float, k_auto: bool, temperature: float,
    max_new_tokens: float, seed: float | None, check: bool,
) -> RunRequest:  # fmt: skip
    """The run that the controls ask for; raises BadRequest with the value, the choices and the remedy."""
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadRequest("The prompt is empty: write something for the model to answer.")
    if len(prompt) > MAX_PROMPT_CHARS:
        raise BadRequest(
            f"The prompt has {len(prompt)} characters: at most {MAX_PROMPT_CHARS} fit here, so shorten it."
        )
    settings = RunSettings(
        drafter=drafter,
        num_draft_tokens="auto" if k_auto else _whole("k", k, 1, MAX_K),
        temperature=temperature,
        max_new_tokens=_whole("New tokens", max_new_tokens, 1, MAX_NEW_TOKENS),
        seed=_whole("The seed", seed, 0, MAX_SEED),
    )
    kinds = [kind for _, kind in drafter_choices(find_pair(pair))]
    if drafter not in kinds:
        raise BadRequest(
            f"The drafter is {drafter!r}, which these models do not have: choose one of {', '.join(kinds)}."
        )
    return RunRequest(pair, prompt, settings, raw=bool(raw), check=bool(check))


def refusal(error: SpecVizError) -> str:
    """A message with the sentence of an error, and nothing else."""
    return message(_new_id(), 0, done=True, error=str(error))


def session_of(request: gr.Request) -> str:
    """The browser page that asks."""
    return request.session_hash or ""


def _whole(name: str, value: object, low: int, high: int) -> int:
    is_whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
    if not is_whole or not low <= value <= high:
        raise BadRequest(f"{name} is {'empty' if value is None else value}: give a whole number from {low} to {high}.")
    return int(value)


def _new_id() -> str:
    return secrets.token_hex(8)
