"""Loads scenarios: a file on top of its base, then its [quick] table, then overrides.

Paths in a file are relative to the file's folder; they are made absolute.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rayfl.config.overrides import (
    apply_override,
    check_keys,
    check_nesting,
    names_what_it_did,
    parse_override,
    reaches_a_phase_that_runs,
    table_overrides,
    too_deep,
)
from rayfl.config.participation import Devices
from rayfl.config.scenario import Scenario
from rayfl.config.scenario_files import find, is_shipped
from rayfl.config.user_modules import add_own_folder, make_importable
from rayfl.errors import ScenarioError

PATHS = (
    "start.file",
    "start.run",
    "data.options.path",
    "data.options.test_path",
    "data.options.root",
    "data.options.tokenizer",
    "model.folder",
    "module_folders",
    *(f"participation.{key}.file" for key in Devices.model_fields),
    "participation.availability.sessions",
)
"""Keys of scenarios that hold paths, besides `start.scenario`, which holds a name or a path."""

_INNER = ("quick.", "start.overrides.")
"""Tables whose keys are themselves key paths of a scenario."""


def absolute(tables: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """A scenario's tables, or overrides of one, with absolute paths.

    Args:
        tables: As read; keys may be key paths (`"start.file"`).
        folder: The folder of the file that they come from; by default the working directory, for a command line or a
            program.
    """
    return {key: absolute_value(key, value, folder) for key, value in tables.items()}


def absolute_value(key: str, value: Any, folder: Path | None = None) -> Any:
    """The value of one key path, with absolute paths; see `absolute`."""
    if isinstance(value, Mapping):
        return {inner: absolute_value(f"{key}.{inner}", item, folder) for inner, item in value.items()}
    while key.startswith(_INNER):
        key = key.removeprefix("quick.").removeprefix("start.overrides.")
    if key in PATHS:
        return [_joined(path, folder) for path in value] if isinstance(value, list | tuple) else _joined(value, folder)
    return _absolute_scenario(value, folder) if key == "start.scenario" else value


def _joined(path: Any, folder: Path | None) -> Any:
    """The path relative to a folder; anything that is not a path, such as a URL of a user's source, stays as it is."""
    if not isinstance(path, str) or "://" in path:
        return path
    return os.path.abspath(os.path.join(folder or "", os.path.expanduser(path)))  # noqa: PTH100, PTH111, PTH118 - texts


def _absolute_scenario(name: Any, folder: Path | None) -> Any:
    """The path of a scenario. Scenarios shipped with rayfl, and names that are not found, keep their name."""
    if not isinstance(name, str) or name.endswith(".toml"):
        return _joined(name, folder)
    try:
        path = find(name, folder)
    except ScenarioError:  # reported where it is read
        return name
    return name if is_shipped(path) else _joined(str(path), None)


Overrides = Mapping[str, Any] | Iterable[str | tuple[str, Any]]
"""`{"phases.0.rounds": 10}`, `["phases.0.rounds=10"]`, `[("phases.0.rounds", 10)]`, or a single override as text."""


def load_scenario(
    scenario: str | Path | Mapping[str, Any] | Scenario, overrides: Overrides = (), quick: bool = False
) -> Scenario:
    """Loads and validates a scenario.

    A file or table may name a `base`, another scenario by name or path. It starts from the values of the base and
    overrides them by the rules of `apply_override`. It does not inherit the name of the base. It inherits the [quick]
    table of the base unless it has its own, except for keys of phases that no longer exist or have no rounds, and for
    options of a choice (such as a model) that it replaces.

    Paths in a file are relative to its folder, and modules in that folder can be imported. Paths in overrides and
    tables are relative to the working directory. The returned scenario has absolute paths.

    Args:
        scenario: A name, the path of a TOML file, a table, or a scenario.
        overrides: Values to replace, in order.
        quick: Whether to apply the [quick] table, whose keys are paths like those of overrides, before the overrides.

    Raises:
        ScenarioError: The scenario does not exist or cannot be read, or a key is wrong.

    Example:
        >>> import rayfl
        >>> scenario = rayfl.load_scenario("femnist_cyclic", ["seed=1", "phases.cyclic.rounds=10"])
        >>> scenario.seed, scenario.phases[0].rounds
        (1, 10)
    """
    if not isinstance(quick, bool):
        raise ScenarioError(f"quick: must be True or False (got {quick!r})")
    if not isinstance(scenario, str | Path | Mapping | Scenario):
        raise ScenarioError(f"scenario: must be a name, path, table or Scenario (got a {type(scenario).__name__})")
    if isinstance(scenario, Scenario):
        tables, origin = absolute(scenario.model_dump(mode="json", exclude_none=True)), scenario.name
    elif isinstance(scenario, Mapping):
        check_nesting(scenario, "scenario")
        tables, origin = _over_base(absolute(_plain(scenario)), "scenario", None, ()), "scenario"
    else:
        path = find(scenario)
        tables, origin = read_scenario(path), path.stem
    quick_values = tables.pop("quick", None)
    if quick:
        if not quick_values or not isinstance(quick_values, dict):
            raise ScenarioError(f"scenario '{origin}' has no [quick] table")
        for key, value in table_overrides(quick_values):
            apply_override(tables, key, value)
    for key, value in override_pairs(overrides):
        apply_override(tables, key, absolute_value(key, value))
    check_nesting(tables, f"scenario '{origin}'")
    try:
        # before validation, because a phase may have a user-defined schedule
        if isinstance(folders := tables.get("module_folders"), list):
            make_importable([folder for folder in folders if isinstance(folder, str)], tables)
        loaded = Scenario.from_tables(tables)
    except ScenarioError as error:
        raise ScenarioError(f"scenario '{origin}':\n{error}") from None
    return loaded


def has_quick_form(name: str) -> bool:
    """Whether a scenario has or inherits a [quick] table.

    Raises:
        ScenarioError: The scenario does not exist, or its file or base cannot be read.
    """
    return bool(_read_whole(find(name)).get("quick"))


def override_pairs(overrides: Overrides) -> list[tuple[str, Any]]:
    """Returns overrides as pairs of key path and value, in order; a section's table changes it key by key.

    Raises:
        ScenarioError: A text is not `key.path=value`, its value cannot be read, or something else is no override.
    """
    if isinstance(overrides, str) or not isinstance(overrides, Iterable):
        overrides = [overrides]
    given = [_pair(one) for one in (overrides.items() if isinstance(overrides, Mapping) else overrides)]
    return [pair for key, value in given for pair in table_overrides({key: value})]


def _pair(override: Any) -> tuple[str, Any]:
    match override:
        case str():
            return parse_override(override)
        case (str(key), value):
            return key, value
    raise ScenarioError(f"overrides: {override!r} is not one; give {{'phases.0.rounds': 10}} or 'phases.0.rounds=10'")


def read_scenario(path: Path) -> dict[str, Any]:
    """The tables of a scenario file on top of those of its base, with absolute paths; `load_scenario` validates them.

    Raises:
        ScenarioError: The file or its base cannot be read.
    """
    return {"name": path.stem, **_read_whole(path)}


def read_toml(path: Path) -> dict[str, Any]:
    """Reads the tables of a TOML file.

    Raises:
        ScenarioError: The file cannot be read, is not TOML, or is nested too deeply.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin files with a byte order mark
        check_keys(text, f"cannot read scenario file '{path}'")
        tables = tomllib.loads(text)
    except RecursionError:
        raise too_deep(f"cannot read scenario file '{path}'") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, not TOML, or a number with thousands of digits
        raise ScenarioError(f"cannot read scenario file '{path}': {error}") from error
    check_nesting(tables, f"cannot read scenario file '{path}'")
    return tables


def _read_whole(path: Path, derived: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Reads a file on top of its base. `derived` holds the files derived from it, to detect circles."""
    chain = (*derived, path.resolve())
    if path.resolve() in derived:
        raise ScenarioError(f"a circle of bases: {' -> '.join(file.name for file in chain)}")
    tables = absolute(read_toml(path), path.parent)
    add_own_folder(tables, path.parent)
    return _over_base(tables, str(path), path.parent, chain)


def _over_base(tables: dict[str, Any], where: str, folder: Path | None, chain: tuple[Path, ...]) -> dict[str, Any]:
    base = tables.pop("base", None)
    if base is None:
        return tables
    if not isinstance(base, str):
        raise ScenarioError(f"{where}: base: must be a scenario's name or the path of a .toml file (got {base!r})")
    try:
        whole = _read_whole(find(base, folder), chain)
        inherited = whole.pop("quick", None)
        whole.pop("name", None)
        quick = tables.pop("quick", None)
        before = _plain(whole)
        for key, value in table_overrides(tables):
            apply_override(whole, key, value)
        if isinstance(folders := tables.get("module_folders"), list):
            whole["module_folders"] = list(dict.fromkeys([*folders, *before.get("module_folders", [])]))
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    if quick is None and isinstance(inherited, dict):
        quick = {
            key: value
            for key, value in table_overrides(inherited)
            if reaches_a_phase_that_runs(whole, key) and names_what_it_did(before, whole, key)
        }
    return whole if quick is None else {**whole, "quick": quick}


def _plain(value: Any) -> Any:
    """Copies a value into the types that tomllib returns, so that overrides can change it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
