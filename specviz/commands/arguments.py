"""Arguments that several commands share, and the settings they stand for."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from specviz.config import (
    DRAFT_PRECISIONS,
    DRAFTER_KINDS,
    EXIT_HEADS,
    MAX_NUM_DRAFT_TOKENS,
    SURE_OF_THEMSELVES,
    TRACE_DETAILS,
    RunSettings,
)
from specviz.engine.embedded import is_embedded_source
from specviz.errors import BadRequest
from specviz.presets import Preset
from specviz.trace.checks import shown

Number = TypeVar("Number", int, float)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Which models, where and how precise."""
    group = parser.add_argument_group("models")
    group.add_argument("--target", metavar="ID_OR_DIR", help="the target (default: the embedded SmolLM2-135M-Instruct)")
    group.add_argument(
        "--draft",
        metavar="ID_OR_DIR",
        help="a draft model with the target's tokenizer, a draft folder that was trained for the target, or the name of a shipped one",
    )
    group.add_argument("--draft-precision", help=f"{', '.join(DRAFT_PRECISIONS)} (default: the preset's, else auto)")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    group.add_argument(
        "--dtype",
        default="auto",
        help="auto (int8 for the embedded target on x86, else bfloat16 where it is fast), int8, bfloat16, float16, float32",
    )


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """One argument for each setting of `RunSettings`; an argument that is not given leaves the preset's value."""
    defaults = RunSettings()
    draft = parser.add_argument_group("drafting")
    draft.add_argument(
        "--drafter",
        help=f"{', '.join(DRAFTER_KINDS)} (default: what --draft is; for the embedded target its draft head; else prompt_lookup)",
    )
    draft.add_argument(
        "--k",
        type=draft_length,
        metavar="N",
        help=f"draft tokens a round, 0 being plain decoding, or auto: as long as the draft is sure (default: the preset's, "
        f"else auto for {', '.join(SURE_OF_THEMSELVES)}, {defaults.num_draft_tokens} for prompt_lookup)",
    )
    draft.add_argument(
        "--k-max",
        type=whole("--k-max", f"from 1 to {MAX_NUM_DRAFT_TOKENS}"),
        metavar="N",
        help=f"longest draft with --k auto (default {defaults.max_draft_tokens})",
    )
    draft.add_argument(
        "--draft-threshold",
        type=real("--draft-threshold", "from 0 to 1"),
        metavar="P",
        help=f"with --k auto, draft on while the draft's own probability to stand whole is at least this (default {defaults.draft_threshold})",
    )
    draft.add_argument(
        "--lookup-first",
        action=argparse.BooleanOptionalAction,
        help="draft_head, draft_model: copy from the text where it repeats, and draft where it does not (default: on where neither --drafter nor --draft is given and the target has a draft head)",
    )
    draft.add_argument(
        "--exit-layer",
        type=whole("--exit-layer", "from 1 on"),
        metavar="E",
        help="early_exit: layers that draft (default: a third)",
    )
    draft.add_argument(
        "--exit-heads",
        help=f"early_exit, as drafter and as mode: {', '.join(EXIT_HEADS)} (default: translators where the target has some)",
    )
    draft.add_argument(
        "--max-ngram",
        type=whole("--max-ngram", "from 1 to 64"),
        metavar="N",
        help=f"prompt_lookup: longest suffix (default {defaults.max_ngram})",
    )
    draft.add_argument(
        "--min-ngram",
        type=whole("--min-ngram", "from 1 to --max-ngram"),
        metavar="N",
        help=f"prompt_lookup: shortest suffix (default {defaults.min_ngram})",
    )
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument(
        "--temperature", type=real("--temperature", "from 0 (greedy) on"), metavar="T", help="0 is greedy (default 0)"
    )
    sampling.add_argument("--top-k", type=whole("--top-k", "from 0 (off) on"), metavar="N", help="0 is off (default 0)")
    sampling.add_argument(
        "--top-p", type=real("--top-p", "above 0, up to 1 (off)"), metavar="P", help="1 is off (default 1)"
    )
    sampling.add_argument(
        "--repetition-penalty",
        type=real("--repetition-penalty", "above 0 (1 is off)"),
        metavar="R",
        help="1 is off (default 1)",
    )
    sampling.add_argument(
        "--suppress-token-id",
        type=whole("--suppress-token-id", "from 0 on"),
        action="append",
        metavar="ID",
        help="never generate it (repeatable)",
    )
    sampling.add_argument(
        "--seed",
        type=whole("--seed", "from 0 on"),
        metavar="N",
        help="a run with the same seed is the same run (default 0)",
    )
    stopping = parser.add_argument_group("stopping")
    stopping.add_argument(
        "--max-new-tokens",
        type=whole("--max-new-tokens", "from 1 on"),
        metavar="N",
        help=f"(default {defaults.max_new_tokens})",
    )
    stopping.add_argument(
        "--min-new-tokens",
        type=whole("--min-new-tokens", "from 0 on"),
        metavar="N",
        help="no end token before that (default 0)",
    )
    stopping.add_argument("--stop", action="append", metavar="TEXT", help="end at this text (repeatable)")
    stopping.add_argument(
        "--eos-token-id",
        type=whole("--eos-token-id", "from 0 on"),
        action="append",
        metavar="ID",
        help="end token (repeatable; default: the model's own)",
    )
    stopping.add_argument(
        "--deadline", type=real("--deadline", "of seconds"), metavar="SECONDS", help="stop after this much wall time"
    )
    parser.add_argument("--trace-detail", help=f"{', '.join(TRACE_DETAILS)} (default {defaults.trace_detail})")


_SETTING_OF_ARGUMENT = {
    "k": "num_draft_tokens",
    "k_max": "max_draft_tokens",
    "suppress_token_id": "suppress_token_ids",
    "eos_token_id": "eos_token_ids",
}
_SAID_BY_THE_ENGINE = {"num_draft_tokens (k)": "k", "max_draft_tokens (k-max)": "k_max"} | {
    setting: argument for argument, setting in _SETTING_OF_ARGUMENT.items()
}


def settings_given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given on the command line, by their names in `RunSettings`."""
    given: dict[str, Any] = {}
    for name in (*RunSettings.__dataclass_fields__, *_SETTING_OF_ARGUMENT):
        value = getattr(args, name, None)
        if value is not None:
            given[_SETTING_OF_ARGUMENT.get(name, name)] = value
    if "max_ngram" in given and "min_ngram" not in given:
        given["min_ngram"] = min(RunSettings().min_ngram, given["max_ngram"])
    return given


def model_sources(args: argparse.Namespace, preset: Preset | None) -> dict[str, str | None]:
    """Which models `add_model_arguments` or the preset name, as arguments of `load_pair`.

    Raises:
        BadRequest: both name a target.
    """
    if preset is None:
        return {
            "target": None if is_embedded_source(args.target) else args.target,
            "draft": args.draft,
            "revision": None,
            "draft_revision": None,
            "draft_precision": args.draft_precision or "auto",
        }
    if args.target is not None:
        raise BadRequest("Both --preset and --target are given: a preset names its target, leave one out.")
    pair = preset.pair
    return {
        "target": None if pair.is_embedded else pair.target,
        "draft": args.draft or pair.draft,
        "revision": pair.target_revision,
        "draft_revision": None if args.draft else pair.draft_revision,
        "draft_precision": args.draft_precision or preset.draft_precision,
    }


def option_of(name: str) -> str:
    """The option of an argument's name: "k_max" -> "--k-max"."""
    return "--" + name.replace("_", "-")


def in_options(sentence: str, args: argparse.Namespace) -> str:
    """A sentence about a setting, which the engine calls by its own name, in the words of this command line.

    >>> in_options("top_p is 2: give a number from 0 to 1.", argparse.Namespace(top_p=2))
    '--top-p is 2: give a number from 0 to 1.'
    """
    arguments = {name: name for name in vars(args)} | _SAID_BY_THE_ENGINE
    names = [re.escape(name) for name in sorted(arguments, key=len, reverse=True)]
    subject = re.match(rf"({'|'.join(names)})(?= (?:is|has) )", sentence)
    if subject is None:
        return sentence  # it is about something else: a file, a model
    others = rf"(?<![\w'\"/.-])({'|'.join(name for name in names if '_' in name)})(?![\w'\"/.-])"
    rest = re.sub(others, lambda found: option_of(arguments[found[1]]), sentence[subject.end() :])
    return option_of(arguments[subject[1]]) + rest


def whole(option: str, choices: str = "") -> Callable[[str], int]:
    """A type for argparse that reads a whole number, and says in one sentence what is none.

    Args:
        choices: which ones there are, as "from 1 to 64"; whether it is one of them, is checked by who uses it.
    """
    return lambda text: _read(int, text, option, f"give a whole number{choices and f' {choices}'}")


def real(option: str, choices: str = "") -> Callable[[str], float]:
    """As `whole`, for any number."""
    return lambda text: _read(float, text, option, f"give a number{choices and f' {choices}'}")


def draft_length(text: str) -> int | Literal["auto"]:
    """The value of --k."""
    remedy = f"give a whole number from 0 to {MAX_NUM_DRAFT_TOKENS}, or auto"
    return "auto" if text == "auto" else _read(int, text, "--k", remedy)


def _read(kind: Callable[[str], Number], text: str, option: str, remedy: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise BadRequest(f"{option} is {shown(text)}: {remedy}.") from None


def read_prompt(prompt: str | None, prompt_file: str | None, default: str | None) -> str:
    """The prompt as given, from a file ("-" is standard input), or the preset's.

    Raises:
        BadRequest: none of them, two of them, or a file that cannot be read as UTF-8 text.
    """
    import sys
    from pathlib import Path

    if prompt is not None and prompt_file is not None:
        raise BadRequest("Both --prompt and --prompt-file are given: leave one out.")
    if prompt_file is not None:
        try:
            data = sys.stdin.buffer.read() if prompt_file == "-" else Path(prompt_file).read_bytes()
            return data.decode("utf-8-sig")
        except OSError as error:
            raise BadRequest(
                f"--prompt-file {prompt_file!r} cannot be read ({error.strerror}): name a text file."
            ) from None
        except UnicodeDecodeError as error:
            raise BadRequest(
                f"--prompt-file {prompt_file!r} is not UTF-8 at byte {error.start}: save it as UTF-8."
            ) from None
    text = default if prompt is None else prompt
    if text is None:
        raise BadRequest("There is no prompt: give --prompt TEXT, --prompt-file FILE, or a --preset that has one.")
    return text
