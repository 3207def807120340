"""What a page of the documentation shows: its blocks of TOML and Python, and its commands."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "how-to").glob("*.md"))

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n|^\n)+", re.MULTILINE)
COMMAND = re.compile(r"(?:^|-- )(?:rayfl (run|grid|data|submit)|python -m rayfl\.(scenario|grid|data_report)) (.*)$")
MESSAGE = re.compile(r"^\| `rayfl run (.*?)` \| `(.*)` \|$", re.MULTILINE)


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def fenced(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [block for _, found, block in FENCE.findall(text(page)) if found == language]


def tables(page: str) -> list[dict[str, Any]]:
    """The blocks of TOML, fenced or indented. Indented ones that are no TOML show something else."""
    found = [tomllib.loads(block) for block in fenced(page, "toml")]
    for block in INDENTED.findall(FENCE.sub("", text(page))):
        try:
            found.append(tomllib.loads(block))
        except tomllib.TOMLDecodeError:
            continue
    return [table for table in found if table]


def messages(page: str) -> list[tuple[list[str], str]]:
    """Rows of a table of error messages: the arguments of `rayfl run`, and the message."""
    return [(shlex.split(arguments), message) for arguments, message in MESSAGE.findall(text(page))]


def commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """The commands that name a scenario or grid: `run`, `grid`, `data` or `submit`, and their arguments."""
    prose = MESSAGE.sub("", text(page))
    blocks = [*fenced(page, "sh"), *INDENTED.findall(FENCE.sub("", prose))]
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", prose))
    for line in [*"\n".join(blocks).splitlines(), *spans]:
        found = COMMAND.search(line.strip())
        if found is None or re.search(r"\.\.\.|\$|\b(NAME|SCENARIO)\b|--list|--resume|--help", found[3]):
            continue
        name = {"scenario": "run", "data_report": "data"}.get(found[2], found[2]) or found[1]
        arguments = shlex.split(found[3], comments=True)
        if arguments and not arguments[0].endswith(".toml") and arguments[0] not in ("prepare", "verify"):
            yield name, arguments
