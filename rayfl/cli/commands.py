"""The table of commands; adding a command takes one line here."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """A command of `rayfl`.

    Attributes:
        name: The word after `rayfl`.
        summary: One line for `rayfl --help`.
        module: The module with `parser(prog)`, which makes the argument parser, and `main(arguments, prog)`, which runs
            the command and returns its exit status. `prog` is the command as typed: `rayfl run`. Shell completion calls
            `parser`, so it must load neither PyTorch nor Ray.
    """

    name: str
    summary: str
    module: str

    def run(self, arguments: Sequence[str]) -> int:
        """Runs the command and returns its exit status."""
        status: int = import_module(self.module).main(arguments, prog=f"rayfl {self.name}")
        return status

    def parser(self) -> ArgumentParser:
        """The parser of the command's options."""
        parser: ArgumentParser = import_module(self.module).parser(f"rayfl {self.name}")
        return parser


GROUPS: Mapping[str, tuple[Command, ...]] = {
    "get started": (
        Command("new", "write a starter scenario and your own algorithm", "rayfl.cli.new"),
        Command("doctor", "check whether this machine is ready for rayfl", "rayfl.cli.doctor.command"),
        Command("completion", "print the completion script for your shell", "rayfl.cli.completion"),
        Command("list", "list scenarios, grids, and the tables of a paper", "rayfl.cli.list"),
        Command("examples", "copy the examples to a folder", "rayfl.cli.examples"),
    ),
    "run experiments": (
        Command("run", "run a scenario", "rayfl.cli.run"),
        Command("resume", "continue a run that was interrupted, killed or lost", "rayfl.cli.run"),
        Command("grid", "run all cells of a grid, and make its table", "rayfl.cli.grid"),
    ),
    "run on a Ray cluster": (
        Command("submit", "submit a scenario to a Ray cluster", "rayfl.cli.cluster"),
        Command("attach", "follow a submitted run", "rayfl.cli.cluster"),
        Command("status", "show the status of submitted runs", "rayfl.cli.cluster"),
        Command("scale", "measure short runs as they grow, and say what breaks first", "rayfl.cli.scale"),
        Command("stop", "end a submitted run after the current round", "rayfl.cli.cluster"),
    ),
    "look at data and results": (
        Command("plot", "draw learning curves of runs and grids for a paper", "rayfl.cli.figures"),
        Command("report", "write a page on a run or a grid, in one HTML file", "rayfl.cli.figures"),
        Command("data", "print and draw the split of a scenario's data among its clients", "rayfl.cli.data"),
        Command("compare", "compare finished runs and grids in a table", "rayfl.cli.figures"),
        Command("analyse", "analyse runs: gains, landscapes, kernels, curves", "rayfl.cli.analyse"),
    ),
}
"""The commands, grouped as `rayfl --help` shows them."""

COMMANDS = {command.name: command for group in GROUPS.values() for command in group}
