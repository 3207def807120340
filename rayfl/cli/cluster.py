"""`rayfl submit`, `attach`, `status` and `stop`: runs that belong to a cluster, from a shell."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from rayfl.cli.exit_status import exit_status
from rayfl.cli.options import (
    add_centralised,
    add_scenario,
    check_centralised,
    command_parser,
    folder_or_uri,
    refuse,
)

EXAMPLES = """\
examples:
  rayfl submit femnist_cyclic seed=1 --name cyclic       # returns at once
  rayfl submit femnist_cyclic --priority 5               # starts before others that wait for the cluster
  rayfl attach cyclic                                    # follows it; Ctrl-C detaches, the run continues
  rayfl status                                           # active runs of the cluster, and ended ones in the folder runs
  rayfl stop cyclic                                      # ends it after the current round
"""


def main(arguments: Sequence[str], prog: str) -> int:
    """Runs one of the commands; returns an exit status (see `exit_status`). Invalid options exit with 2.

    Args:
        arguments: The command's arguments.
        prog: Ends with the command, such as `rayfl submit`.
    """
    of_command = parser(prog)
    options = of_command.parse_intermixed_args(arguments)
    command = _command(prog)
    if command == "submit":
        if not options.name:
            of_command.error("name a scenario; `rayfl list` lists them")
        check_centralised(of_command, options)
    if command == "status":
        if options.run:
            refuse(of_command, options, "with NAME", "out")
        options.out = options.out or Path("runs")
    return exit_status(lambda: _execute(command, options))


def parser(prog: str) -> argparse.ArgumentParser:
    """The argument parser of the command that `prog` ends with."""
    command = _COMMANDS[_command(prog)]
    parser = command_parser(prog, command.summary, EXAMPLES)
    command.add_options(parser)
    parser.add_argument(
        "--address",
        default=os.environ.get("RAY_ADDRESS", "auto"),
        help="the Ray cluster's address (default: $RAY_ADDRESS, else the cluster that this machine belongs to)",
    )
    return parser


def _command(prog: str) -> str:
    return prog.rpartition(" ")[2]


def _execute(command: str, options: argparse.Namespace) -> int:
    from rayfl.cli import submitted_runs as commands

    handlers = {
        "submit": commands.submit_run,
        "attach": commands.follow_run,
        "status": commands.print_status,
        "stop": commands.stop_run,
    }
    return handlers[command](options, Console())


def _add_submission(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser, "scenario")
    parser.add_argument("--name", dest="run", metavar="NAME", help="the run's name (default: its folder's name)")
    parser.add_argument(
        "--out",
        type=folder_or_uri,
        default="runs",
        metavar="DIR",
        help="parent of the run's folder (default: runs)",
    )
    add_centralised(parser)
    parser.add_argument(
        "--priority",
        type=int,
        default=0,
        metavar="N",
        help="of runs that wait for the cluster, those with a higher priority start first (default: 0)",
    )
    parser.add_argument("--attach", action="store_true", help="follow the run, as `rayfl attach` does")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="NAME", help="name of a submitted run")


def _add_any_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="NAME", nargs="?", help="name of a submitted run (default: all runs)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="parent of the folders of runs that have ended (default: runs)",
    )


class _Command(NamedTuple):
    summary: str
    add_options: Callable[[argparse.ArgumentParser], None]


_COMMANDS = {
    "submit": _Command("Submit a scenario to a Ray cluster, which runs it in the background.", _add_submission),
    "attach": _Command("Follow a submitted run.", _add_run),
    "status": _Command("Show the status of submitted runs.", _add_any_run),
    "stop": _Command("End a submitted run after the current round.", _add_run),
}
