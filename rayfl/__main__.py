"""The command `rayfl`, also `python -m rayfl`: run, submit and analyse scenarios and grids, and list what there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

import rayfl
from rayfl.command_line.ending import exit_status

EXAMPLES = """\
examples:
  rayfl list
  rayfl run femnist_cyclic --quick
  rayfl run femnist_cyclic --help
  rayfl resume runs/femnist_cyclic-20260101-120000
  rayfl resume runs/femnist_cyclic-20260101-120000 --more 100
  rayfl grid cyclicfl_table_2 --out /shared/runs
  rayfl analyse gains runs/femnist_cyclic-20260101-120000
  rayfl submit femnist_cyclic --name cyclic && rayfl attach cyclic
  rayfl data fashion_mnist_cyclic data.partition.beta=0.5
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand; `exit_status` explains what is returned."""
    parser = argparse.ArgumentParser(
        prog="rayfl",
        description="Simulate federated learning on Ray.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rayfl {rayfl.__version__}")
    parser.add_argument("--list", action="store_true", help="as the command list")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    # these parse their own options, since argparse mixes options and overrides in a parser of their own only
    commands.add_parser("run", help="run a scenario", add_help=False)
    commands.add_parser("resume", help="go on with a run that was interrupted, killed or lost", add_help=False)
    commands.add_parser("grid", help="run every cell of a grid, and make its table", add_help=False)
    commands.add_parser("data", help="print and draw how a scenario's data is split among its clients", add_help=False)
    commands.add_parser("analyse", help="analyse finished runs: gains, landscapes, kernels, curves", add_help=False)
    commands.add_parser("submit", help="hand a scenario over to a Ray cluster", add_help=False)
    commands.add_parser("attach", help="follow a submitted run", add_help=False)
    commands.add_parser("status", help="say how submitted runs are doing", add_help=False)
    commands.add_parser("stop", help="end a submitted run after the round under way", add_help=False)
    commands.add_parser("examples", help="copy the examples to a folder", add_help=False)
    commands.add_parser("list", help="list the scenarios and grids that can be run")
    chosen, rest = parser.parse_known_args(arguments)
    _see_working_directory()
    if chosen.command == "run":
        from rayfl.scenario import main as run_scenario

        return run_scenario(rest, prog="rayfl run")
    if chosen.command == "resume":
        from rayfl.scenario import main as run_scenario

        return run_scenario(["--resume", *rest], prog="rayfl resume")
    if chosen.command == "grid":
        from rayfl.grid.__main__ import main as run_grid

        return run_grid(rest, prog="rayfl grid")
    if chosen.command == "data":
        from rayfl.data_report import main as report_data

        return report_data(rest, prog="rayfl data")
    if chosen.command == "analyse":
        from rayfl.analysis.__main__ import main as analyse

        return analyse(rest, prog="rayfl analyse")
    if chosen.command == "examples":
        from rayfl.command_line.examples import main as copy_examples

        return copy_examples(rest)
    if chosen.command in ("submit", "attach", "status", "stop"):
        from rayfl.cluster.commands import main as of_submitted

        return of_submitted(chosen.command, rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if not (chosen.list or chosen.command == "list"):
        parser.error("which command? run, resume, grid, data, analyse, submit, attach, status, stop, examples or list")
    return exit_status(_list)


def _see_working_directory() -> None:
    """Lets the console script import the user's modules from where `python -m rayfl` does."""
    here = str(Path.cwd())
    if not sys.flags.safe_path and not {"", here} & set(sys.path):
        sys.path.insert(0, here)


def _list() -> int:
    from rayfl.command_line.listing import print_grids, print_scenarios

    print_scenarios()
    Console().print()
    print_grids()
    return 0


if __name__ == "__main__":
    sys.exit(main())
