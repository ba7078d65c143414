"""Arguments that several commands share, and the settings they stand for."""

from __future__ import annotations

import argparse
from typing import Any, Literal

from specviz.config import DRAFT_PRECISIONS, DRAFTER_KINDS, EXIT_HEADS, TRACE_DETAILS, RunSettings
from specviz.errors import BadRequest
from specviz.presets import Preset


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
        help=f"{', '.join(DRAFTER_KINDS)} (default: what --draft is; for the embedded target its draft head, with --k auto; else prompt_lookup)",
    )
    draft.add_argument(
        "--k",
        type=number_or_auto,
        metavar="N",
        help=f"draft tokens a round, or auto (default {defaults.num_draft_tokens})",
    )
    draft.add_argument(
        "--k-max", type=int, metavar="N", help=f"longest draft with --k auto (default {defaults.max_draft_tokens})"
    )
    draft.add_argument(
        "--draft-threshold",
        type=float,
        metavar="P",
        help=f"with --k auto, draft on while the draft's own probability to stand whole is at least this (default {defaults.draft_threshold})",
    )
    draft.add_argument("--exit-layer", type=int, metavar="E", help="early_exit: layers that draft (default: a third)")
    draft.add_argument(
        "--exit-heads",
        help=f"early_exit, as drafter and as mode: {', '.join(EXIT_HEADS)} (default: translators where the target has some)",
    )
    draft.add_argument(
        "--max-ngram", type=int, metavar="N", help=f"prompt_lookup: longest suffix (default {defaults.max_ngram})"
    )
    draft.add_argument(
        "--min-ngram", type=int, metavar="N", help=f"prompt_lookup: shortest suffix (default {defaults.min_ngram})"
    )
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument("--temperature", type=float, metavar="T", help="0 is greedy (default 0)")
    sampling.add_argument("--top-k", type=int, metavar="N", help="0 is off (default 0)")
    sampling.add_argument("--top-p", type=float, metavar="P", help="1 is off (default 1)")
    sampling.add_argument("--repetition-penalty", type=float, metavar="R", help="1 is off (default 1)")
    sampling.add_argument(
        "--suppress-token-id", type=int, action="append", metavar="ID", help="never generate it (repeatable)"
    )
    sampling.add_argument("--seed", type=int, metavar="N", help="a run with the same seed is the same run (default 0)")
    stopping = parser.add_argument_group("stopping")
    stopping.add_argument("--max-new-tokens", type=int, metavar="N", help=f"(default {defaults.max_new_tokens})")
    stopping.add_argument("--min-new-tokens", type=int, metavar="N", help="no end token before that (default 0)")
    stopping.add_argument("--stop", action="append", metavar="TEXT", help="end at this text (repeatable)")
    stopping.add_argument(
        "--eos-token-id",
        type=int,
        action="append",
        metavar="ID",
        help="end token (repeatable; default: the model's own)",
    )
    stopping.add_argument("--deadline", type=float, metavar="SECONDS", help="stop after this much wall time")
    parser.add_argument("--trace-detail", help=f"{', '.join(TRACE_DETAILS)} (default {defaults.trace_detail})")


_SETTING_OF_ARGUMENT = {
    "k": "num_draft_tokens",
    "k_max": "max_draft_tokens",
    "suppress_token_id": "suppress_token_ids",
    "eos_token_id": "eos_token_ids",
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
            "target": args.target,
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


def number_or_auto(text: str) -> int | Literal["auto"]:
    """The value of --k."""
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor auto") from None


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
