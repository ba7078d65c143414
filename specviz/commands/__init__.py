"""The commands of `python -m specviz`. Each module has NAME, HELP, add_arguments(parser) and run(args) -> exit code."""

from specviz.commands import bench, check_pair, distill, doctor, fetch, generate, replay

COMMANDS = (generate, bench, replay, check_pair, distill, fetch, doctor)
