"""`python -m specviz COMMAND`: exit code 0 done, 1 it ran and failed, 2 the request was wrong, 130 interrupted."""

from __future__ import annotations

import argparse
import sys

from specviz import __version__
from specviz.commands import COMMANDS
from specviz.errors import SpecVizError

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command; every SpecVizError becomes one sentence on stderr."""
    args = _parser().parse_args(arguments)
    try:
        return args.command.run(args)
    except SpecVizError as error:
        print(f"specviz {args.command.NAME}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"specviz {args.command.NAME}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specviz", description="Real speculative decoding, made visible.")
    parser.add_argument("--version", action="version", version=f"specviz {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = commands.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(subparser)
        subparser.set_defaults(command=command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
