"""The files of scenarios, grids and papers, by name or path. Does not import pydantic, for the shell's completion."""

from __future__ import annotations

import os
from pathlib import Path

import rayfl
from rayfl.errors import ScenarioError

GRID = ".grid"
"""Suffix of a grid's file name before `.toml`: `table_1.grid.toml` is the grid `table_1`."""

PAPER = ".paper"
"""Suffix of the file that lists a paper's tables and figures, beside their grids: `fps/fps.paper.toml`."""

_SUFFIXES = {"scenario": "", "grid": GRID, "paper": PAPER}


def find_scenarios() -> dict[str, Path]:
    """Finds all scenarios under the working directory's `scenarios/`, and those shipped with rayfl.

    Files whose names begin with `_` are only bases for other files and are left out.

    Returns:
        The files by scenario name. If a name exists in both places, the working directory's file is used.

    Raises:
        ScenarioError: Two files in one of the two places share a name.
    """
    return _by_name("scenario")


def find_grids() -> dict[str, Path]:
    """Finds all grids, in the same places as `find_scenarios`. Their files end in `.grid.toml`."""
    return _by_name("grid")


def find_papers() -> dict[str, Path]:
    """Finds the files of all papers, in the same places as `find_scenarios`. They end in `.paper.toml`."""
    return _by_name("paper")


def find(name: str | Path, folder: Path | None = None, kind: str = "scenario") -> Path:
    """Finds the file of one scenario or grid.

    Args:
        name: A name, or a path that ends in `.toml`.
        folder: The folder of the file that refers to it. Paths are relative to it, and a file with that name in it is
            preferred.
        kind: `scenario`, `grid` or `paper`.

    Raises:
        ScenarioError: The file does not exist; the message suggests the nearest names.
    """
    path = (folder or Path()) / name
    if path.suffix == ".toml":
        if not _is_file(path):
            raise ScenarioError(f"no {kind} file '{path}'")
        return path
    beside = Path(f"{path}.toml")
    if folder is not None and _is_file(beside):
        return beside
    known = _by_name(kind)
    if str(name) not in known:
        from rayfl.config.registry import nearest  # takes longer to load than the shell's completion should

        similar = nearest(str(name), known)
        hint = "`rayfl list` lists all" if similar.startswith("known: ") else similar
        command = {"scenario": "grid", "grid": "run"}.get(kind)
        if command and str(name) in _by_name("grid" if kind == "scenario" else "scenario"):
            hint = f"there is one for `rayfl {command} {name}`"
        elif os.path.isfile(beside):  # noqa: PTH113 - unlike Path.is_file, also false for a name that is too long
            hint = f"did you mean '{beside}'?"
        raise ScenarioError(f"no {kind} '{name}'; {hint} (or give a path ending in .toml)")
    return known[str(name)]


def is_shipped(path: Path) -> bool:
    """Whether a scenario or grid is shipped with rayfl, from where it is installed or unchanged in a clone."""
    here, ours = path.resolve(), shipped("scenarios").resolve()
    if here.is_relative_to(ours):
        return True
    clone = Path("scenarios").resolve()
    twin = ours / here.relative_to(clone) if here.is_relative_to(clone) else None
    return twin is not None and twin.is_file() and twin.read_bytes() == here.read_bytes()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # a name that is too long, a folder without access permission
        raise ScenarioError(f"cannot look for '{path}': {error.strerror}") from None


def _by_name(kind: str) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for root in (Path("scenarios"), shipped("scenarios")):
        here: dict[str, Path] = {}
        for folder, file in sorted((folder, file) for folder, _, files in os.walk(root) for file in files):
            stem = file.removesuffix(".toml")
            if stem == file or file.startswith("_") or _kind_of(stem) != kind:
                continue
            name = stem.removesuffix(_SUFFIXES[kind])
            path = Path(folder, file)
            if name in here:
                raise ScenarioError(f"two {kind}s have the name '{name}': {here[name]} and {path}")
            here[name] = path
        paths = here | paths
    return paths


def _kind_of(stem: str) -> str:
    return next((kind for kind, suffix in _SUFFIXES.items() if suffix and stem.endswith(suffix)), "scenario")


def shipped(name: str) -> Path:
    """A folder of rayfl: inside the package in an installed wheel, beside it in a checkout."""
    package = Path(rayfl.__file__).parent
    inside = package / name
    return inside if inside.is_dir() else package.parent / name
