"""`key.path=value`: one value of a scenario, replaced."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError

from rayfl.config.scenario import Scenario
from rayfl.config.section import Section
from rayfl.config.validation import annotation_at
from rayfl.errors import ScenarioError


def parse_override(text: str) -> tuple[str, Any]:
    """(key path, value) of `phases.0.rounds=10`; the value's type is the schema's at that key.

    Raises:
        ScenarioError: there is no `=` in it.
    """
    key, equals, raw = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise ScenarioError(f"'{text}' is not an override; write key.path=value, for example phases.0.rounds=10")
    try:
        adapter = TypeAdapter(annotation_at(Scenario, _split(key)))
    except KeyError:
        return key, raw
    candidates = [*_toml_value(raw), raw]
    for candidate in candidates:
        try:
            adapter.validate_python(candidate)
        except ValidationError:
            continue
        return key, candidate
    return key, candidates[0]


def apply_override(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set the value at a dotted key path, in place; list elements are counted from 0.

    Raises:
        ScenarioError: the path leads through something that is no table, or past the end of a list.
    """
    *parents, last = _split(key)
    node: Any = tables
    for depth, part in enumerate(parents):
        where = ".".join(map(str, parents[: depth + 1]))
        if isinstance(node, list):
            part = _index(node, part, where)
        else:
            node.setdefault(part, {})
        if isinstance(node[part], str):
            node[part] = {"name": node[part]}  # algorithm = "fedavg" is short for { name = "fedavg" }
        node = node[part]
        if not isinstance(node, dict | list):
            raise ScenarioError(f"{key}: '{where}' is a value, not a table")
    if isinstance(node, list):
        node[_index(node, last, key)] = value
    else:
        node[last] = value


def quick_overrides(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(key path, value) of a [quick] table, be they written `"data.clients" = 40` or `clients = 40` in [quick.data]."""
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and _holds_keys(path):
            yield from quick_overrides(value, f"{path}.")
        else:
            yield path, value


def _holds_keys(path: str) -> bool:
    """Whether this is a section, or the list of phases: not something that is given as a whole."""
    try:
        annotation = annotation_at(Scenario, _split(path))
    except KeyError:
        return False
    return get_origin(annotation) is tuple or (isinstance(annotation, type) and issubclass(annotation, Section))


def _split(key: str) -> tuple[int | str, ...]:
    return tuple(int(part) if part.isdecimal() else part for part in key.split("."))


def _index(node: list[Any], part: int | str, where: str) -> int:
    if not isinstance(part, int) or part >= len(node):
        raise ScenarioError(f"{where}: the list has {len(node)} elements, counted from 0 to {len(node) - 1}")
    return part


def _toml_value(raw: str) -> list[Any]:
    try:
        return [tomllib.loads(f"value = {raw}")["value"]]
    except tomllib.TOMLDecodeError:
        return []
