"""Finds scenarios by name or path and makes them whole: the file, then [quick], then overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import rayfl
from rayfl.config.overrides import apply_override, parse_override, quick_overrides
from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError
from rayfl.registry import nearest

Overrides = Mapping[str, Any] | Iterable[str]
"""`{"phases.0.rounds": 10}`, `["phases.0.rounds=10"]`, or a single one as text."""


def load_scenario(
    scenario: str | Path | Mapping[str, Any] | Scenario, overrides: Overrides = (), quick: bool = False
) -> Scenario:
    """The resolved scenario of a name, a path to a TOML file, a table, or a scenario.

    quick: apply the file's [quick] table, whose keys are paths like those of overrides.

    Raises:
        ScenarioError: there is no such scenario, it cannot be read, or a key is wrong.
    """
    if isinstance(scenario, Scenario):
        tables, origin = scenario.model_dump(mode="json", exclude_none=True), scenario.name
    elif isinstance(scenario, Mapping):
        tables, origin = _plain(scenario), "scenario"
    else:
        path = _find(scenario)
        tables, origin = _read(path), path.stem
        tables.setdefault("name", path.stem)
    quick_values = tables.pop("quick", None)
    if quick:
        if not quick_values or not isinstance(quick_values, dict):
            raise ScenarioError(f"scenario '{origin}' has no [quick] table")
        for key, value in quick_overrides(quick_values):
            apply_override(tables, key, value)
    if isinstance(overrides, str):
        overrides = [overrides]
    pairs = overrides.items() if isinstance(overrides, Mapping) else map(parse_override, overrides)
    for key, value in pairs:
        apply_override(tables, key, value)
    try:
        return Scenario.from_tables(tables)
    except ScenarioError as error:
        raise ScenarioError(f"scenario '{origin}':\n{error}") from None


def find_scenarios() -> dict[str, Path]:
    """Every scenario by name: those under the working directory's `scenarios/`, then those shipped with rayfl.

    Raises:
        ScenarioError: two files of one folder tree share a name.
    """
    found: dict[str, Path] = {}
    for root in (Path("scenarios"), _shipped()):
        here: dict[str, Path] = {}
        for path in sorted(root.rglob("*.toml")):
            if path.stem in here:
                raise ScenarioError(f"two scenarios are called '{path.stem}': {here[path.stem]} and {path}")
            here[path.stem] = path
        found = here | found
    return found


def scenario_title(path: Path) -> str:
    """The title of a scenario file, unvalidated."""
    return str(_read(path).get("title", ""))


def _plain(value: Any) -> Any:
    """A copy as tomllib would have read it, which overrides may change."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _shipped() -> Path:
    """In an installed wheel the scenarios lie inside the package, in a checkout beside it."""
    package = Path(rayfl.__file__).parent
    inside = package / "scenarios"
    return inside if inside.is_dir() else package.parent / "scenarios"


def _find(scenario: str | Path) -> Path:
    path = Path(scenario)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ScenarioError(f"no scenario file '{path}'")
        return path
    known = find_scenarios()
    if str(scenario) not in known:
        raise ScenarioError(
            f"no scenario '{scenario}'; {nearest(str(scenario), known)} (or give a path ending in .toml)"
        )
    return known[str(scenario)]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"cannot read scenario file '{path}': {error}") from error
