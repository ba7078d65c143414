"""Arguments of `generate --mode early_exit`, and the settings they stand for."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from specviz.commands.arguments import option_of, real, whole
from specviz.early_exit.exit_run import ExitRunKind
from specviz.early_exit.exit_settings import EXIT_MEASURES, NEVER, ExitSettings
from specviz.errors import BadRequest

EARLY_EXIT = "early_exit"
# The arguments that mean something in this mode only: name -> field of `ExitSettings`, or none.
_FIELDS = {
    "exit_measure": "measure",
    "exit_threshold": "threshold",
    "exit_threshold_decay": "threshold_decay",
    "exit_min_layer": "min_layer",
    "exit_layers": "exit_layers",
    "exit_run": None,
}
_OF_DRAFTING = (
    "drafter",
    "draft",
    "draft_precision",
    "k",
    "k_max",
    "draft_threshold",
    "lookup_first",
    "exit_layer",
    "max_ngram",
    "min_ngram",
)


def add_exit_arguments(parser: argparse.ArgumentParser) -> None:
    """One argument for each setting of `ExitSettings`, and the mode."""
    defaults = ExitSettings()
    group = parser.add_argument_group("early exit (unverified: the text may change)")
    group.add_argument(
        "--mode", metavar="MODE", help=f"{EARLY_EXIT}: a token leaves at the layer that is sure enough of it"
    )
    group.add_argument("--exit-measure", help=f"{', '.join(EXIT_MEASURES)} (default {defaults.measure})")
    group.add_argument(
        "--exit-threshold",
        metavar="T",
        help=f"a token leaves where the measure reaches this, from 0 to 1, or {NEVER} (default {defaults.threshold})",
    )
    group.add_argument(
        "--exit-threshold-decay",
        type=real("--exit-threshold-decay", "from 0 (off) on"),
        metavar="TAU",
        help="how fast the threshold falls over the run, to nine tenths of itself (default 0: it does not)",
    )
    group.add_argument(
        "--exit-min-layer",
        type=whole("--exit-min-layer", "from 1 on"),
        metavar="N",
        help="no token leaves before so many layers",
    )
    group.add_argument(
        "--exit-layers",
        metavar="N,N,...",
        help="after which layers a token is looked at (default: where it usually pays)",
    )
    group.add_argument(
        "--exit-run", metavar="KIND", help="timed: exits are real (default); map: every layer is run and read out"
    )


def exits_given(args: argparse.Namespace) -> ExitSettings | None:
    """The exit settings of the command line; None for another mode.

    Raises:
        BadRequest: an unknown mode, a value that cannot be, or an argument of another mode.
    """
    given = {name: value for name in _FIELDS if (value := getattr(args, name)) is not None}
    if args.mode is None:
        for name in given:
            raise BadRequest(
                f"{option_of(name)} is given without --mode {EARLY_EXIT}: add it, or leave {option_of(name)} out."
            )
        return None
    if args.mode != EARLY_EXIT:
        raise BadRequest(
            f"--mode is {args.mode!r}: give {EARLY_EXIT}, or leave it out and choose a --drafter (none is plain decoding)."
        )
    for name in _OF_DRAFTING:
        if getattr(args, name) is not None:
            raise BadRequest(
                f"{option_of(name)} is given, but --mode is {EARLY_EXIT}, which drafts nothing: leave one of them out."
            )
    if args.exit_run is not None and args.exit_run not in get_args(ExitRunKind):
        raise BadRequest(f"--exit-run is {args.exit_run!r}: choose one of {', '.join(get_args(ExitRunKind))}.")
    values: dict[str, Any] = {_FIELDS[name]: value for name, value in given.items() if _FIELDS[name] is not None}
    if "threshold" in values:
        values["threshold"] = _threshold(values["threshold"])
    if "exit_layers" in values:
        values["exit_layers"] = _layers(values["exit_layers"])
    if args.exit_heads is not None:
        values["heads"] = args.exit_heads
    return ExitSettings(**values)


def _threshold(text: str) -> float | str:
    if text == NEVER:
        return NEVER
    try:
        return float(text)
    except ValueError:
        raise BadRequest(f"--exit-threshold is {text!r}: give a number from 0 to 1, or {NEVER}.") from None


def _layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadRequest(
            f"--exit-layers is {text!r}: give whole numbers with commas between, such as 10,14,18."
        ) from None
