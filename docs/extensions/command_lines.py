"""`{commands}`: every command of rayfl, from its argument parser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sphinx.application import Sphinx

from extensions import prose
from extensions.generated import directive
from rayfl.cli.commands import COMMANDS, GROUPS, Command

WIDTH = 100
"""Width of the usage text, independent of the terminal."""


def as_markdown(words: list[str]) -> str:
    """Returns all commands by group."""
    parts = []
    for title, commands in GROUPS.items():
        parts += [f"## {title[:1].upper()}{title[1:]}", *(_command(command) for command in commands)]
    return "\n\n".join(parts)


def _command(command: Command) -> str:
    parser = command.parser()
    parts = [
        f"### `rayfl {command.name}`",
        prose.as_markdown(parser.description or command.summary),
        f"```text\n{_usage(parser)}\n```",
        "\n\n".join(_argument(parser, action) for action in shown(parser)),
    ]
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog.strip()}\n```")
    return "\n\n".join(part for part in parts if part)


def shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Returns the arguments that `--help` lists, except `--help` itself."""
    hidden = ("help", "version")
    return [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest not in hidden]


def _usage(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=WIDTH)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help().strip()


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else "")
    if not value and action.nargs != 0:
        value = action.dest.upper() if action.option_strings else action.dest
    name = ", ".join(f"{option} {value}".strip() for option in action.option_strings) or str(value)
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return f"`{name}`\n: {prose.one_line(text)}"


def _files(words: list[str]) -> list[str]:
    names = {type(command).__module__ for command in COMMANDS.values()} | {
        command.module for command in COMMANDS.values()
    }
    return sorted(str(Path(str(sys.modules[name].__file__))) for name in names if name in sys.modules)


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds `{commands}`."""
    app.add_directive("commands", directive(as_markdown, _files))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
