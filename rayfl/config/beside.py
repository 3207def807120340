"""Paths that a file names are relative to its own folder; this makes them absolute."""

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
"""Keys of scenarios that hold paths, beside `start.scenario`, which holds a name or a path."""

_INNER = ("quick.", "start.overrides.")
"""Tables whose keys are key paths of a scenario again."""


def absolute(tables: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """A scenario's tables, or overrides of one, with absolute paths.

    Args:
        tables: As read; keys may be key paths (`"start.file"`).
        folder: Of the file that they are from; by default the working directory, where a command line or a program
            gave them.
    """
    return {key: absolute_value(key, value, folder) for key, value in tables.items()}


def absolute_value(key: str, value: Any, folder: Path | None = None) -> Any:
    """The value of one key path with absolute paths; see `absolute`."""
    if isinstance(value, Mapping):
        return {inner: absolute_value(f"{key}.{inner}", given, folder) for inner, given in value.items()}
    while key.startswith(_INNER):
        key = key.removeprefix("quick.").removeprefix("start.overrides.")
    if key in PATHS:
        return [_joined(path, folder) for path in value] if isinstance(value, list | tuple) else _joined(value, folder)
    return _scenario(value, folder) if key == "start.scenario" else value


def _joined(path: Any, folder: Path | None) -> Any:
    """The path from a folder on; whatever is no path, such as a URL of a source of the user's own, stays as it is."""
    if not isinstance(path, str) or "://" in path:
        return path
    return os.path.abspath(os.path.join(folder or "", os.path.expanduser(path)))  # noqa: PTH100, PTH111, PTH118 - texts


def _scenario(name: Any, folder: Path | None) -> Any:
    """The path of a scenario. One that rayfl ships keeps its name, and so does one that is not there."""
    if not isinstance(name, str) or name.endswith(".toml"):
        return _joined(name, folder)
    try:
        path = find(name, folder)
    except ScenarioError:  # told where it is read
        return name
    return name if is_shipped(path) else _joined(str(path), None)
