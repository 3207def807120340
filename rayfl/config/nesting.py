"""Limits how deeply the tables and lists of a scenario may be nested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayfl.errors import ScenarioError

DEEPEST = 50
"""Levels of tables and lists. Parsers and validators recurse and would otherwise run out of stack."""

MOST_DOTS = 1000
"""Maximum number of dots in a key: tomllib's time grows with the square of the number of parts."""


def check_nesting(value: Any, where: str) -> None:
    """Rejects a value that is nested more than `DEEPEST` levels deep, or that contains itself.

    Raises:
        ScenarioError: Begins with `where`.
    """
    left = [(value, 1)]
    while left:
        node, level = left.pop()
        if not isinstance(node, Mapping | list | tuple):
            continue
        if level > DEEPEST:
            raise too_deep(where)
        left += [(inner, level + 1) for inner in (node.values() if isinstance(node, Mapping) else node)]


def check_keys(text: str, where: str) -> None:
    """Rejects TOML with a dotted key of thousands of parts, before it is parsed.

    Raises:
        ScenarioError: Begins with `where`.
    """
    if any(part.count(".") > MOST_DOTS for line in text.splitlines() for part in line.split("=")):
        raise too_deep(where)


def too_deep(where: str) -> ScenarioError:
    """The error for tables and lists that are nested too deeply."""
    return ScenarioError(f"{where}: tables and lists are nested more than {DEEPEST} levels deep")
