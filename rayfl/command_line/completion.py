"""`rayfl completion`, and completion itself: commands, options, scenarios, grids and keys of overrides."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence

import argcomplete
from argcomplete.completers import FilesCompleter
from argcomplete.shell_integration import shellcode

from rayfl.command_line.commands import COMMANDS
from rayfl.command_line.options import command_parser

SHELLS = ("bash", "zsh", "fish")

EXAMPLES = """\
examples:
  {prog} bash >> ~/.bashrc
  {prog} zsh >> ~/.zshrc
  {prog} fish > ~/.config/fish/completions/rayfl.fish
"""


def main(arguments: Sequence[str], prog: str) -> int:
    """The command: prints the completion script of a shell."""
    shell = parser(prog).parse_args(arguments).shell
    print(shellcode(["rayfl"], shell=shell), end="")
    return 0


def parser(prog: str) -> argparse.ArgumentParser:
    """The command's parser."""
    parser = command_parser(prog, "Print the completion script for a shell.", EXAMPLES)
    parser.add_argument("shell", choices=SHELLS)
    return parser


def complete() -> None:
    """Prints completions for the shell, which asks through argcomplete's environment variables; ends the process."""
    line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
    argcomplete.autocomplete(whole_parser(line.split()[1:2]), always_complete_options=False)


def whole_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands. Only the command in `words` has its options, because loading them takes time."""
    parser = argparse.ArgumentParser(prog="rayfl")
    parser.add_argument("--version", action="store_true")
    commands = parser.add_subparsers()
    for name, command in COMMANDS.items():
        if [*words] == [name]:
            own = command.parser()
            for action in own._actions:
                _add_completer(action)
            commands.add_parser(name, help=command.summary, parents=[own], add_help=False)
        else:
            commands.add_parser(name, help=command.summary, add_help=False)
    return parser


def _add_completer(action: argparse.Action) -> None:
    if action.dest == "name" and action.metavar in ("scenario", "grid"):
        action.completer = _Names(str(action.metavar))  # type: ignore[attr-defined]
    elif action.dest == "overrides":
        action.completer = _override_keys  # type: ignore[attr-defined]


class _Names:
    """Completes names of scenarios or grids, and paths of TOML files."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, prefix: str, **_: object) -> Iterable[str]:
        from rayfl.config.finding import find_grids, find_scenarios

        names = find_grids() if self.kind == "grid" else find_scenarios()
        return [*names, *FilesCompleter(allowednames=["toml"])(prefix)]


def _override_keys(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Keys of a scenario below the last dot of `prefix`; if a section is the only match, its keys."""
    if "=" in prefix:
        return []
    found = [key for key in _keys(prefix.rpartition(".")[0], parsed_args.name) if key.startswith(prefix)]
    while len(found) == 1 and found[0].endswith("."):
        found = [*_keys(found[0].rstrip("."), parsed_args.name)]
    return found


def _keys(section: str, scenario: str | None) -> Iterator[str]:
    from pydantic import BaseModel

    from rayfl.config.scenario import Scenario
    from rayfl.config.validation import annotation_at, members

    parts = tuple(section.split(".")) if section else ()
    if parts == ("phases",):
        yield from (f"phases.{name}." for name in _phases(scenario))
        return
    path: tuple[int | str, ...] = ("phases", 0, *parts[2:]) if parts[:1] == ("phases",) else parts
    try:
        kinds = members(annotation_at(Scenario, path)) if path else [Scenario]
    except KeyError:
        return
    start = f"{section}." if section else ""
    fields = {
        name: field.annotation
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, field in kind.model_fields.items()
    }
    for name, annotation in fields.items():
        is_section = name == "phases" or any(
            isinstance(kind, type) and issubclass(kind, BaseModel) for kind in members(annotation)
        )
        yield f"{start}{name}{'.' if is_section else '='}"


def _phases(scenario: str | None) -> list[str]:
    from rayfl.config.loading import load_scenario
    from rayfl.errors import ScenarioError

    try:
        return [phase.name for phase in load_scenario(scenario).phases] if scenario else []
    except ScenarioError:  # the run will report the error
        return []
