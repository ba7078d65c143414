"""`specviz generate`: one run; the text to stdout as it is certain, a summary with --json, a trace with --trace."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specviz.commands.arguments import (
    add_model_arguments,
    add_settings_arguments,
    model_sources,
    read_prompt,
    settings_given,
)
from specviz.commands.exit_arguments import EARLY_EXIT, add_exit_arguments, exits_given
from specviz.commands.recording import Recording
from specviz.commands.without_effect import idle_in_a_run, idle_in_early_exit, note_without_effect
from specviz.config import RunSettings, default_draft_tokens
from specviz.engine.draft_facts import DRAFT_KINDS, draft_kind_of, shipped_sentence, why_no_draft
from specviz.errors import BadRequest
from specviz.events import Event
from specviz.metrics import speedup_over_plain
from specviz.presets import EMBEDDED_TARGET, Preset, find_pair, find_preset
from specviz.trace.closing import committed_tokens
from specviz.trace.sentences import counted, drafter_words, exit_facts, identity_sentence
from specviz.trace.summary import summarize
from specviz.trace.visible_text import encodable_text, visible_text
from specviz.trace.writer import require_writable

if TYPE_CHECKING:
    from specviz.early_exit.exit_settings import ExitSettings
    from specviz.engine.loader import ModelPair
    from specviz.runs import Run

NAME = "generate"
HELP = "run one prompt on a real model: plainly, speculatively or with early exits"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt")
    parser.add_argument(
        "--prompt-file", metavar="FILE", help="the prompt from a UTF-8 text file; - reads standard input"
    )
    parser.add_argument("--system", metavar="TEXT", help="a system message for the chat template")
    parser.add_argument("--raw", action="store_true", help="give the prompt as it is, without the chat template")
    parser.add_argument("--preset", metavar="NAME", help="a lesson or a pair by name")
    add_model_arguments(parser)
    add_settings_arguments(parser)
    add_exit_arguments(parser)
    parser.add_argument("--check", action="store_true", help="also decode plainly, and compare")
    parser.add_argument("--trace", metavar="FILE", help="write the run's events, one JSON object a line")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the text")


def run(args: argparse.Namespace) -> int:
    """Returns 0 when it was done (also if --check found a difference), 1 when the run or the writing of its trace failed.

    Raises:
        BadRequest: before anything is loaded wherever that is possible.
    """
    preset = find_preset(args.preset) if args.preset else None
    prompt = read_prompt(args.prompt, args.prompt_file, preset.prompt if preset else None)
    sources = model_sources(args, preset)
    exits = exits_given(args)
    settings = _settings(args, preset, sources)
    raw = args.raw or bool(preset and preset.raw)
    if sources["target"] is None and not raw and not prompt.strip():  # other targets may have no chat template
        raise BadRequest("The prompt is empty: give --prompt or --prompt-file some text.")
    if args.trace is not None:
        if args.prompt_file is not None and Path(args.trace).resolve() == Path(args.prompt_file).resolve():
            raise BadRequest(f"--trace and --prompt-file are both {args.trace!r}: give the trace a file of its own.")
        require_writable(args.trace)
    _refuse_layers_beyond(settings, exits, sources)
    if exits is None and settings.drafter != "none" and settings.most_draft_tokens == 0:
        _note("k is 0: plain decoding.")

    from specviz.engine.loader import load_pair

    pair = load_pair(**sources, device=args.device, dtype=args.dtype, notify=_note)
    if args.drafter is None and preset is None and exits is None:
        settings = _with_a_draft_that_fits(settings, pair)
    note_without_effect(idle_in_early_exit(args, settings, exits) if exits else idle_in_a_run(args, settings))
    generation = _generation(pair, prompt, settings, exits, args, raw)
    recording = Recording(generation, args.trace)
    try:
        summary = summarize(list(recording) if args.json else _echo(iter(recording), settings))
    finally:
        if recording.fault is not None:
            _note(f"specviz {NAME}: {recording.fault}")
    if args.json:
        print(json.dumps(summary, allow_nan=False))
    elif summary["error"] is None:
        _note_summary(summary, generation.mode)
    if summary["error"] is not None:
        _note(summary["error"])
    return 0 if summary["error"] is recording.fault is None else 1


def _generation(
    pair: ModelPair, prompt: str, settings: RunSettings, exits: ExitSettings | None, args: argparse.Namespace, raw: bool
) -> Run:
    from specviz.early_exit.exit_run import ExitRun
    from specviz.runs import Run

    common = {"raw": raw, "system": args.system, "check": args.check}
    if exits is None:
        return Run(pair, prompt, settings, **common)
    return ExitRun(pair, prompt, settings, exits, kind=args.exit_run or "timed", **common)


def _settings(args: argparse.Namespace, preset: Preset | None, sources: dict[str, str | None]) -> RunSettings:
    given = settings_given(args)
    if preset is not None:
        return _with_default_k({**preset.settings, **given})
    draft, is_embedded = sources["draft"], sources["target"] is None
    kind = None if draft is None else draft_kind_of(draft)
    settings = _with_default_k((_defaults(kind, is_embedded) if "drafter" not in given else {}) | given)
    if kind is not None and settings.drafter != kind:
        raise BadRequest(
            f"--draft is given, but --drafter is {settings.drafter}: use --drafter {kind}, or leave --draft out."
        )
    if settings.drafter in DRAFT_KINDS and why_no_draft(settings.drafter, draft, is_embedded=is_embedded):
        raise BadRequest(
            f"--drafter is {settings.drafter}, but there is no --draft: name one, or use prompt_lookup or early_exit. "
            f"{shipped_sentence()}"
        )
    return settings


def _with_default_k(values: dict[str, Any]) -> RunSettings:
    """The settings of these values, with the drafter's own k where they have none."""
    drafter = values.get("drafter", RunSettings().drafter)
    return RunSettings.from_dict({"num_draft_tokens": default_draft_tokens(drafter)} | values)


def _refuse_layers_beyond(settings: RunSettings, exits: ExitSettings | None, sources: dict[str, str | None]) -> None:
    """Raise BadRequest for layers that the target lacks, before any weights are loaded."""
    drafted_by = settings.exit_layer if settings.drafter == "early_exit" else None
    if not (exits.exit_layers or exits.min_layer if exits else drafted_by):
        return
    from specviz.drafters.early_exit import refuse_beyond
    from specviz.engine.loader import layers_of

    num_layers, name = layers_of(sources["target"], sources["revision"])
    if num_layers is None:
        return
    if exits is not None:
        exits.refuse_beyond(num_layers, name)
    else:
        refuse_beyond(drafted_by, num_layers, name)


def _defaults(draft_kind: str | None, is_embedded: bool) -> dict[str, Any]:
    """How to draft where nobody said it: with the draft that is given, else with the best that the target has."""
    if draft_kind is not None:
        return {"drafter": draft_kind}
    return find_pair(EMBEDDED_TARGET).best_settings if is_embedded else {}


def _with_a_draft_that_fits(settings: RunSettings, pair: ModelPair) -> RunSettings:
    """Prompt lookup in place of a shipped draft that turns out to be for another target."""
    if settings.drafter not in DRAFT_KINDS or pair.draft_for(settings.drafter) is not None:
        return settings
    _note(f"No {drafter_words(settings.drafter)} that is shipped fits this target: drafting with prompt lookup.")
    k = default_draft_tokens("prompt_lookup") if settings.is_adaptive else settings.num_draft_tokens
    return replace(settings, drafter="prompt_lookup", num_draft_tokens=k)


def _echo(events: Iterator[Event], settings: RunSettings) -> Iterator[Event]:
    """Pass the events on, and print the text that is certain so far."""
    from specviz.engine.stopping import GeneratedText

    text, num_shown = GeneratedText(settings.stop), 0
    for event in _ended_by_a_line(events):
        if event["type"] == "round":
            for token in committed_tokens(event):
                text.append(token)
            shown = text.streamable_text
            _write(shown[num_shown:])
            num_shown = len(shown)
        elif event["type"] == "run_finished":
            _write(event["output_text"][num_shown:] + "\n")
        yield event


def _ended_by_a_line(events: Iterator[Event]) -> Iterator[Event]:
    try:
        yield from events
    except KeyboardInterrupt:
        _write("\n")
        raise


def _write(text: str) -> None:
    # On a terminal the model's text must not act (escape sequences); a file or a pipe gets it as it is.
    shown = visible_text(text, newlines=False) if sys.stdout.isatty() else text
    sys.stdout.write(encodable_text(shown, sys.stdout.encoding))
    sys.stdout.flush()


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def _note_summary(summary: dict[str, Any], mode: str) -> None:
    counts, speed = summary["counts"], summary["metrics"]["tokens_per_second"]
    parts = [*_counted(summary, mode)]
    if speed is not None:
        parts.append(f"{speed:.1f} tokens/s in the rounds (measured)")
    _note("; ".join(parts) + ".")
    if summary["identity"] is not None:
        _note(identity_sentence(summary["identity"]))
        if (measured := speedup_over_plain(mode, speed, summary["identity"])) is not None:
            tokens_per_round = None if mode == EARLY_EXIT else summary["metrics"]["mean_tokens_per_round"]
            _note(speedup_sentence(measured[0], counts["committed"], tokens_per_round))


def _counted(summary: dict[str, Any], mode: str) -> Iterator[str]:
    """What a run of that mode came to, in the words of that mode."""
    counts, ended = summary["counts"], f"(ended by {summary['reason']})"
    num_tokens = counted(counts["committed"], "token")
    if mode == EARLY_EXIT:
        yield f"{num_tokens} {ended}"
        if (exits := exit_facts(summary["metrics"])) is not None:
            yield exits
        return
    yield f"{num_tokens} in {counts['rounds']} target {'pass' if counts['rounds'] == 1 else 'passes'} {ended}"
    if mode == "speculative":
        judged = counts["accepted"] + counts["rejected"]
        accepted = f"{counts['accepted']} of {counted(judged, 'judged draft token')} accepted"
        yield accepted if judged else "no draft token was judged"


def speedup_sentence(speedup: float, num_tokens: int, mean_tokens_per_round: float | None) -> str:
    """The measured ratio, and what stands against reading too much into it."""
    said = f"{speedup:.2f}x the tokens/s of plain decoding, both measured once over {num_tokens} tokens"
    if mean_tokens_per_round is not None and speedup > mean_tokens_per_round:
        said += f"; {mean_tokens_per_round:.2f} tokens a pass cannot give more than that factor, the rest is noise"
    return f"{said}."
