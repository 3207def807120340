"""Converts docstrings, plain prose with single backticks for code, to markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import dedent, indent

CODE = re.compile(r"(``.+?``|`[^`\n]+(?:\n[^`\n]+)?`)", re.DOTALL)
"""A piece of code in a paragraph; a docstring may break a line inside one."""

_MARKDOWN = re.compile(r"([\\*_<>$|\[\]{}~^])")
_RESTRUCTURED = re.compile(r"([\\*|]|_(?!\w))")


def as_markdown(text: str) -> str:
    """Converts prose to Markdown in which every character except backticks is literal.

    Indented blocks, which are formulas or listings, stay unchanged, and so do the dashes of lists.
    """
    return "\n\n".join(_block(block, _escaped_markdown) for block in _blocks(text))


def one_line(text: str) -> str:
    """Converts prose to one line of Markdown."""
    return " ".join(as_markdown(text).split())


def as_restructured(lines: list[str]) -> list[str]:
    """Converts docstring lines to reStructuredText in which every character except backticks is literal."""

    def marked(line: str) -> str:
        if ">>>" in line or line.lstrip().startswith(("...", "*")):
            return line
        pieces = re.split(r"(``.+?``|`[^`]+`)", line)
        return "".join(
            f"``{piece.strip('`')}``"
            if piece.startswith("`") and piece.endswith("`") and len(piece) > 1
            # half of a piece of code that continues on the next line
            else _RESTRUCTURED.sub(r"\\\1", piece).replace("`", "'")
            for piece in pieces
        )

    return [marked(line) for line in lines]


def _blocks(text: str) -> list[str]:
    return [block for block in re.split(r"\n\s*\n", dedent(text).strip("\n")) if block.strip()]


def _block(block: str, escaped: Callable[[str], str]) -> str:
    if block.startswith("    "):
        return f"```text\n{dedent(block)}\n```"
    if block.startswith("- "):
        items = re.split(r"^- ", block, flags=re.MULTILINE)[1:]
        return "\n".join("- " + indent(escaped(dedent(item).strip()), "  ").lstrip() for item in items)
    return escaped(block)


def _escaped_markdown(text: str) -> str:
    return "".join(
        piece.replace("\n", " ") if piece.startswith("`") else _MARKDOWN.sub(r"\\\1", piece)
        for piece in CODE.split(text)
    )
