"""Where scenarios and grids lie, and how they are found by name."""

from __future__ import annotations

from pathlib import Path

import rayfl
from rayfl.errors import ScenarioError
from rayfl.registry import nearest

GRID = ".grid"
"""Ends the stem of a grid's file: `table_1.grid.toml` is the grid `table_1`."""


def find_scenarios() -> dict[str, Path]:
    """Every scenario by name: those under the working directory's `scenarios/`, then those shipped with rayfl.

    A file whose name begins with `_` is only a base for others, and not among them.

    Raises:
        ScenarioError: two files of one folder tree share a name.
    """
    return _by_name("scenario")


def find_grids() -> dict[str, Path]:
    """Every grid by name, as `find_scenarios`; their files end in `.grid.toml`."""
    return _by_name("grid")


def find(name: str | Path, folder: Path | None = None, kind: str = "scenario") -> Path:
    """The file of a scenario, or of a grid: a path that ends in `.toml`, or a name.

    folder: of the file that names it: a path starts there, and a file of that name there goes before all others.

    Raises:
        ScenarioError: there is none; the nearest names are offered.
    """
    path = (folder or Path()) / name
    if path.suffix == ".toml":
        if not path.is_file():
            raise ScenarioError(f"no {kind} file '{path}'")
        return path
    beside = path.with_name(f"{path.name}.toml")
    if folder is not None and beside.is_file():
        return beside
    known = _by_name(kind)
    if str(name) not in known:
        raise ScenarioError(f"no {kind} '{name}'; {nearest(str(name), known)} (or give a path ending in .toml)")
    return known[str(name)]


def _by_name(kind: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for root in (Path("scenarios"), _shipped()):
        here: dict[str, Path] = {}
        for path in sorted(root.rglob("*.toml")):
            name = path.stem.removesuffix(GRID)
            if path.name.startswith("_") or (name != path.stem) != (kind == "grid"):
                continue
            if name in here:
                raise ScenarioError(f"two {kind}s are called '{name}': {here[name]} and {path}")
            here[name] = path
        found = here | found
    return found


def _shipped() -> Path:
    """In an installed wheel the scenarios lie inside the package, in a checkout beside it."""
    package = Path(rayfl.__file__).parent
    inside = package / "scenarios"
    return inside if inside.is_dir() else package.parent / "scenarios"
