"""Replaces single values of a scenario by key path, and limits how deeply its tables and lists may be nested.

The rules are the same for bases, [quick] and command lines.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

from pydantic import TypeAdapter, ValidationError

from rayfl.config.phase import with_default_name
from rayfl.config.registry import nearest
from rayfl.config.scenario import Scenario
from rayfl.config.section import Named, Section
from rayfl.config.validation import annotation_at, members, without_none, written_path
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
    stack = [(value, 1)]
    while stack:
        node, level = stack.pop()
        if not isinstance(node, Mapping | list | tuple):
            continue
        if level > DEEPEST:
            raise too_deep(where)
        stack += [(inner, level + 1) for inner in (node.values() if isinstance(node, Mapping) else node)]


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


_DATA_OPTIONS = "data.options"
"""The options of a source, which belong to its `data.name`."""

_EITHER = {"rounds": "until", "until": "rounds"}
"""A phase has only one of the two; the last one wins."""


def parse_override(text: str) -> tuple[str, Any]:
    """Splits `phases.cyclic.rounds=10` into key path and value; the schema determines the type of the value.

    Raises:
        ScenarioError: `text` has no `=`, or the value cannot be read.
    """
    key, equals, raw = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise ScenarioError(f"'{text}' is not an override; write key.path=value, for example phases.0.rounds=10")
    annotation = _annotation(key, str)
    adapter, parsed = TypeAdapter(annotation), _toml_value(key, raw)
    if not parsed and raw[:1] in {"[", "{"} and annotation is not str:
        raise ScenarioError(f"{key}: {raw} is not TOML: quote texts, write 0.5 rather than .5, and = in tables")
    candidates = [*parsed, raw]
    for candidate in candidates:
        try:
            adapter.validate_python(candidate)
        except ValidationError:
            continue
        return key, candidate
    return key, candidates[0]


def apply_override(tables: dict[str, Any], key: str, value: Any) -> None:
    """Sets the value at a dotted key path, in place.

    Args:
        tables: The scenario's tables.
        key: The key path. List elements are numbered from 0; phases can also be named.
        value: The new value.

    Raises:
        ScenarioError: The path leads through a value that is not a table, beyond the end of a list, or to a phase that
            does not exist.
    """
    *parents, last = _with_phase_index(tables, _split(key))
    node: Any = tables
    for depth, part in enumerate(parents):
        where = written_path(tables, (*parents[: depth + 1],))
        if isinstance(node, list):
            part = _index(node, part, where)
        else:
            node.setdefault(part, {})
        if isinstance(node[part], str):
            # algorithm = "fedavg" is short for { name = "fedavg" }; a section that was given by name is replaced
            node[part] = {} if _is_section(where) else {"name": node[part]}
        node = node[part]
        if not isinstance(node, dict | list):
            raise ScenarioError(f"{key}: '{where}' is a value, not a table")
    if isinstance(node, list):
        last = _index(node, last, key)
    elif last not in node:
        node[last] = {}
    if isinstance(value, Mapping) and not value and _changes_keys(key, value):
        return
    node[last] = value
    if len(parents) == 2 and parents[0] == "phases" and last in _EITHER:
        node.pop(_EITHER[str(last)], None)


def table_overrides(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flattens a table of overrides; `"data.clients" = 40` and `clients = 40` under [data] are equivalent.

    Sections change key by key, and so do phases, choices and `data.options` without a `name` in their table; all other
    values are replaced. An empty table makes a section that is not there, and clears options.

    Yields:
        Pairs of key path and value.
    """
    for key, value in table.items():
        path = f"{prefix}{key}"
        of_same_data = path == _DATA_OPTIONS and "name" not in table
        if isinstance(value, Mapping) and value and (of_same_data or _changes_keys(path, value)):
            yield from table_overrides(value, f"{path}.")
        else:
            yield path, value


def reaches_a_phase_that_runs(tables: Mapping[str, Any], key: str) -> bool:
    """Whether a key path is outside the phases, or in a phase that exists and has rounds."""
    phases = tables.get("phases")
    try:
        match _with_phase_index(tables, _split(key)):
            case ("phases", int(index), *_) if isinstance(phases, list):
                return index < len(phases) and phases[index].get("rounds") != 0
    except ScenarioError:
        return False
    return True


def names_what_it_did(before: Mapping[str, Any], now: Mapping[str, Any], key: str) -> bool:
    """Whether a key path still means the same: False for an option of a choice whose name has changed."""
    parts = key.split(".")
    paths = (".".join(parts[:depth]) for depth in range(1, len(parts)))
    choices = [path for path in paths if _annotation(path, Any) is Named]
    choices += ["data"] if key.startswith(f"{_DATA_OPTIONS}.") else []
    return all(_name_at(before, path) == _name_at(now, path) for path in choices)


def _name_at(tables: Mapping[str, Any], key: str) -> Any:
    node: Any = tables
    try:
        for part in _with_phase_index(tables, _split(key)):
            node = node[part]
    except (KeyError, IndexError, TypeError, ScenarioError):
        return None
    return node.get("name") if isinstance(node, Mapping) else node


def _changes_keys(path: str, value: Mapping[str, Any]) -> bool:
    annotation, parents = _annotation(path, Any), path.split(".")[:-1]
    if annotation is Named or parents == ["phases"]:
        return "name" not in value
    return _is_section(path) or get_origin(annotation) is tuple


def _is_section(path: str) -> bool:
    return all(isinstance(kind, type) and issubclass(kind, Section) for kind in members(_annotation(path, Any)))


def _annotation(key: str, unknown: Any) -> Any:
    """The type of a key in the schema, without `| None`; `unknown` if the key does not exist."""
    parts = _split(key)
    if parts[0] == "phases" and len(parts) > 1:
        parts = ("phases", 0, *parts[2:])
    try:
        return without_none(annotation_at(Scenario, parts))
    except KeyError:
        return unknown


def _split(key: str) -> tuple[int | str, ...]:
    if key.count(".") > MOST_DOTS:
        raise too_deep(f"{key[:40]}...")
    return tuple(int(part) if part.isdecimal() else part for part in key.split("."))


def _with_phase_index(tables: Mapping[str, Any], parts: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Turns `phases.cyclic.rounds` into `phases.0.rounds`.

    Raises:
        ScenarioError: No phase has this name.
    """
    phases = with_default_name(tables.get("phases"))
    match parts:
        case ("phases", str(name), *rest) if isinstance(phases, list):
            names = [str(phase.get("name")) if isinstance(phase, Mapping) else "" for phase in phases]
            if name not in names:
                raise ScenarioError(f"phases.{name}: no phase is called '{name}'; {nearest(name, names)}")
            return ("phases", names.index(name), *rest)
    return parts


def _index(node: list[Any], part: int | str, where: str) -> int:
    if not isinstance(part, int) or part >= len(node):
        raise ScenarioError(f"{where}: the list has {len(node)} elements, counted from 0 to {len(node) - 1}")
    return part


def _toml_value(key: str, raw: str) -> list[Any]:
    """The value parsed as TOML; empty if it is not TOML, such as text without quotes."""
    check_keys(raw, key)
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return [float(raw)] if re.fullmatch(r"[+-]?(\.\d+|\d+\.)", raw) else []
    except RecursionError:
        raise too_deep(key) from None
    except ValueError:
        raise ScenarioError(f"{key}: a number has too many digits") from None
    check_nesting(value, key)
    return [value]
