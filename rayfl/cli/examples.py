"""`rayfl examples`: copies the examples to a folder, ready to run and to change."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rayfl.cli.exit_status import exit_status
from rayfl.config.scenario_files import shipped
from rayfl.console import print_line
from rayfl.errors import ResourceError

NAME = "examples"


def main(arguments: Sequence[str], prog: str) -> int:
    """The command; `exit_status` explains what it returns."""
    folder = parser(prog).parse_args(arguments).folder
    return exit_status(lambda: _copied(folder, Console()))


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Copy the examples: your own data, networks, algorithms, tasks, schedules and callbacks; Ray Tune.",
    )
    parser.add_argument(
        "folder", type=Path, nargs="?", default=Path("rayfl_examples"), help="a new folder (default: %(default)s)"
    )
    return parser


def _copied(folder: Path, console: Console) -> int:
    try:
        shutil.copytree(shipped(NAME), folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    except OSError as error:
        raise ResourceError(
            f"cannot copy the examples to '{folder}': {error.strerror or error}; choose a new folder"
        ) from None
    for file in sorted(folder.glob("*.py")):
        summary = file.read_text(encoding="utf-8").partition('"""')[2].partition("\n")[0].rstrip('"')
        print_line(console, (f"{folder / file.name}", "bold"), f"  {summary}")
    return 0
