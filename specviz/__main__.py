"""`python -m specviz COMMAND`: exit code 0 done, 1 it ran and failed, 2 the request was wrong, 130 interrupted."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command; every SpecVizError becomes one sentence on stderr, and so does an output that goes away."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - it lives as long as the process
    name = "specviz"
    try:
        from specviz.commands.arguments import in_options
        from specviz.errors import SpecVizError

        args = build_parser().parse_args(arguments)
        name = f"specviz {args.command.NAME}"
        try:
            code = args.command.run(args)
            sys.stdout.flush()
            return code
        except SpecVizError as error:
            print(f"{name}: {in_options(str(error), args)}", file=sys.stderr)
            return error.exit_code
    except BrokenPipeError:
        close_quietly()  # whoever read the output has enough: no fault
        return 0
    except OSError as error:
        if not _is_about_stdout(error):
            raise
        close_quietly()
        print(f"{name}: the output cannot be written ({error.strerror}): send it elsewhere.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one sentence, without the usage of every option before it."""

    def parse_args(self, args=None, namespace=None):
        """As argparse does it; what is unknown is said by the parser of the command, whose help lists what there is."""
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known

    def parse_known_args(self, args=None, namespace=None):
        """As argparse does it; what the type of an argument has to say of a value (see `commands/arguments.py`), is said as it is."""
        from specviz.errors import BadRequest

        try:
            return super().parse_known_args(args, namespace)
        except BadRequest as error:
            self.exit(error.exit_code, f"{self.prog}: {error}\n")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help lists the options.\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    from specviz import __version__
    from specviz.commands import COMMANDS

    parser = _Parser(prog="python -m specviz", description="Real speculative decoding, made visible.")
    parser.add_argument("--version", action="version", version=f"specviz {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = commands.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(subparser)
        subparser.set_defaults(command=command, parser=subparser)
    return parser


def close_quietly() -> None:
    """Point standard output at nothing, so that Python's last flush finds no broken pipe either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_about_stdout(error: OSError) -> bool:
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT)


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:  # before the command began
        code = INTERRUPTED
    if code == INTERRUPTED:
        # An interrupt inside exec(), which every dataclass calls, makes Python end by the signal whatever it is told.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
