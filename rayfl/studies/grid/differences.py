"""Differences between two scenarios that can change a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rayfl.config.scenario import CHANGES_NO_RESULT
from rayfl.config.validation import written_path


def differences(before: Mapping[str, Any], now: Mapping[str, Any], named: int = 5) -> str:
    """Returns a line for each of the first keys whose values differ, and the number of further ones.

    Args:
        before: The tables of a scenario.
        now: The tables of another.
        named: The number of keys to list.
    """
    old, new = (dict(leaves(tables)) for tables in (before, now))
    keys = [key for key in old | new if old.get(key) != new.get(key) and key.partition(".")[0] not in CHANGES_NO_RESULT]
    lines = [
        f"  {_written(before, now, key)}: {old.get(key, 'not given')!r} before, {new.get(key, 'not given')!r} now"
        for key in keys[:named]
    ]
    return "\n".join([*lines, *([f"  and {len(keys) - named} more"] if len(keys) > named else [])])


def _written(before: Mapping[str, Any], now: Mapping[str, Any], key: str) -> str:
    """The key as errors write it: by the name of the phase if both scenarios have it there, else by its index."""
    path = tuple(int(part) if part.isdecimal() else part for part in key.split("."))
    one, other = written_path(before, path), written_path(now, path)
    return one if one == other else key


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(key path, value) of everything in nested tables and lists of tables."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and all(isinstance(inner, Mapping) for inner in value):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}.{index}")
    else:
        yield path, value
