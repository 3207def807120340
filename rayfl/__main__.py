"""The command `rayfl`, also `python -m rayfl`: the commands of `rayfl.cli.commands`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import rayfl
from rayfl.cli.commands import COMMANDS, GROUPS

EXAMPLES = """\
examples:
  rayfl new my_method
  rayfl doctor
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
    """Runs a command; `exit_status` explains its exit status."""
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions
        from rayfl.cli.completion import complete

        complete()
    argv = sys.argv[1:] if arguments is None else list(arguments)
    # options before the command belong to rayfl and take no values; the command parses all that follows
    place = next((place for place, word in enumerate(argv) if not word.startswith("-")), len(argv))
    parser = _parser()
    options = parser.parse_args(argv[:place])
    if not (options.list or argv[place:]):
        parser.error(f"no command; choose one of {', '.join(COMMANDS)}")
    name, *rest = ["list", *argv[place:]] if options.list else argv[place:]
    if name not in COMMANDS:
        from rayfl.config.registry import nearest

        parser.error(f"no command '{name}'; {nearest(name, COMMANDS)}")
    _see_working_directory()
    return COMMANDS[name].run(rest)


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    groups = "\n\n".join(
        "\n".join([f"{title}:", *(f"  {name:<{width}}  {summary}" for name, summary, _ in commands)])
        for title, commands in GROUPS.items()
    )
    parser = argparse.ArgumentParser(
        prog="rayfl",
        usage="rayfl [-h] [--version] COMMAND ...",
        description="Simulate federated learning on Ray. Run `rayfl COMMAND --help` for the options of a command.",
        epilog=f"{groups}\n\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rayfl {rayfl.__version__}")
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)  # same as the command `list`
    return parser


def _see_working_directory() -> None:
    """Makes the console script import modules from the working directory, as `python -m rayfl` does."""
    here = str(Path.cwd())
    if not sys.flags.safe_path and not {"", here} & set(sys.path):
        sys.path.insert(0, here)


if __name__ == "__main__":
    sys.exit(main())
