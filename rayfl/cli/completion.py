"""`rayfl completion`, and completion itself: commands, options, scenarios, grids, papers and keys of overrides."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import Any

import argcomplete
from argcomplete.completers import FilesCompleter
from argcomplete.shell_integration import shellcode

from rayfl.cli.commands import COMMANDS
from rayfl.cli.options import command_parser

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
    commands = parser.add_subparsers(parser_class=_Intermixed)
    for name, command in COMMANDS.items():
        if [*words] == [name]:
            own = command.parser()
            for action in own._actions:
                _add_completer(action)
            parents = [own]  # of any class, whatever the annotation of add_parser says
            commands.add_parser(name, help=command.summary, parents=parents, add_help=False)  # type: ignore[arg-type]
        else:
            commands.add_parser(name, help=command.summary, add_help=False)
    return parser


class _Intermixed(argparse.ArgumentParser):
    """Completes overrides that follow options, as commands accept them with `parse_intermixed_args`."""

    def parse_known_args(  # type: ignore[override]  # its overloads are about the namespace
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parses the options first."""
        return super().parse_known_args(self._options_first(list(args or ())), namespace)

    def _options_first(self, words: list[str]) -> list[str]:
        if not any(action.dest == "overrides" for action in self._actions):
            return words
        options: list[str] = []
        others: list[str] = []
        remaining = iter(words)
        for word in remaining:
            option = self._option_string_actions.get(word)
            if option is None:
                others.append(word)
                continue
            options.append(word)
            if option.nargs != 0:
                value = next(remaining, None)
                if value is None:  # which is what is to be completed
                    return words
                options.append(value)
        return [*options, *others]


def _add_completer(action: argparse.Action) -> None:
    if action.dest == "name" and action.metavar in ("scenario", "grid"):
        action.completer = _Names(str(action.metavar))  # type: ignore[attr-defined]
    elif action.dest == "paper":
        action.completer = _papers  # type: ignore[attr-defined]
    elif action.dest == "overrides":
        action.completer = _override_keys  # type: ignore[attr-defined]


class _Names:
    """Completes names of scenarios or grids, and paths of TOML files."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, prefix: str, **_: object) -> Iterable[str]:
        from rayfl.config.scenario_files import find_grids, find_scenarios

        names = find_grids() if self.kind == "grid" else find_scenarios()
        return [*names, *FilesCompleter(allowednames=["toml"])(prefix)]


def _papers(prefix: str, **_: object) -> Iterable[str]:
    from rayfl.config.scenario_files import find_papers

    return find_papers()


def _override_keys(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Keys of a scenario below the last dot of `prefix`; if a section is the only match, its keys."""
    resumed = getattr(parsed_args, "resume", None)
    if "=" in prefix or not (parsed_args.name or resumed):  # the first word is the scenario's name
        return []
    keys = [key for key in _keys(prefix.rpartition(".")[0], parsed_args.name) if key.startswith(prefix)]
    while len(keys) == 1 and keys[0].endswith("."):
        keys = _keys(keys[0].rstrip("."), parsed_args.name)
    return keys


def _keys(section: str, scenario: str | None) -> list[str]:
    """The keys of a section as they are typed, `phases.cyclic.rounds=`."""
    from rayfl.cli.scenario_keys import ANY_PHASE, keys_by_section, phase_names

    match section.split("."):
        case ["phases"]:
            return [f"phases.{name}." for name in phase_names(scenario)] if scenario else []
        case ["phases", _, *rest]:
            known = ".".join([ANY_PHASE, *rest])
        case _:
            known = section
    start = f"{section}." if section else ""
    return [f"{start}{key}" for key in keys_by_section().get(known, [])]
