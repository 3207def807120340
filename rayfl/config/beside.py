"""Makes absolute the paths in a file, which are relative to the file's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rayfl.config.finding import find, is_shipped
from rayfl.config.participation import Devices
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
        return {inner: absolute_value(f"{key}.{inner}", given, folder) for inner, given in value.items()}
    while key.startswith(_INNER):
        key = key.removeprefix("quick.").removeprefix("start.overrides.")
    if key in PATHS:
        return [_joined(path, folder) for path in value] if isinstance(value, list | tuple) else _joined(value, folder)
    return _scenario(value, folder) if key == "start.scenario" else value


def _joined(path: Any, folder: Path | None) -> Any:
    """The path relative to a folder; anything that is not a path, such as a URL of a user's source, stays as it is."""
    if not isinstance(path, str) or "://" in path:
        return path
    return os.path.abspath(os.path.join(folder or "", os.path.expanduser(path)))  # noqa: PTH100, PTH111, PTH118 - texts


def _scenario(name: Any, folder: Path | None) -> Any:
    """The path of a scenario. Scenarios shipped with rayfl, and names that are not found, keep their name."""
    if not isinstance(name, str) or name.endswith(".toml"):
        return _joined(name, folder)
    try:
        path = find(name, folder)
    except ScenarioError:  # reported where it is read
        return name
    return name if is_shipped(path) else _joined(str(path), None)
