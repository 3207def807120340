"""The user's own modules in the folder of the file that names them: importable without PYTHONPATH."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rayfl.errors import ScenarioError


def import_paths(value: Any) -> Iterator[str]:
    """Yields texts of nested tables that could name an object of a module, as `package.module:object`."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from import_paths(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from import_paths(inner)
    elif isinstance(value, str):
        module, _, attribute = value.partition(":")
        if attribute.isidentifier() and all(part.isidentifier() for part in module.split(".")):
            yield value


def add_own_folder(tables: dict[str, Any], folder: Path) -> None:
    """Puts a file's folder first in its `module_folders`, if the file names a module in that folder."""
    folders = tables.get("module_folders", [])
    if isinstance(folders, list) and any(_beside(path, folder) for path in import_paths(tables)):
        tables["module_folders"] = [os.path.abspath(folder), *folders]  # noqa: PTH100 - without ..


def make_importable(folders: Iterable[str], tables: Mapping[str, Any] | None = None) -> None:
    """Lets Python import modules from these folders if it does not find modules of the same names elsewhere.

    Args:
        folders: A module must come from the first of these folders that contains one of its name.
        tables: The scenario's tables, whose modules are checked.

    Raises:
        ScenarioError: Python finds another module of the same name.
    """
    folders = list(folders)
    if new := [folder for folder in folders if folder not in sys.path]:
        sys.path.extend(new)
        importlib.invalidate_caches()
    for path in import_paths(tables or {}):
        folder = next((Path(folder) for folder in folders if _beside(path, Path(folder))), None)
        if folder is not None:
            _check_is_found(path, folder)


def edited(code: Mapping[str, str]) -> list[str]:
    """The modules whose files are not those of these digests, as of `rayfl.runs.environment.code_digests`."""
    return [
        name
        for name, digest in code.items()
        if " " not in digest  # the version of an installed package
        and (source := source_of(name)) is not None
        and source.is_file()
        and hashlib.sha256(source.read_bytes()).hexdigest() != digest
    ]


def source_of(module: str) -> Path | None:
    """The file of a module; a path without suffix if it has no file, None if the module does not exist."""
    if module == "__main__":
        return Path(getattr(sys.modules["__main__"], "__file__", None) or "notebook")
    try:
        spec = find_spec(module)
    except Exception:  # it imports the module's parent packages, whose code may raise anything
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _beside(path: str, folder: Path) -> bool:
    top = path.partition(":")[0].partition(".")[0]
    return (folder / f"{top}.py").is_file() or any((folder / top).glob("*.py"))


def _check_is_found(path: str, folder: Path) -> None:
    top = path.partition(":")[0].partition(".")[0]
    try:
        spec = find_spec(top)
    except ValueError:  # a module without a spec, such as a notebook's own
        return
    origins = (
        [] if spec is None else [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    )
    if not any(origin and Path(origin).resolve().is_relative_to(folder.resolve()) for origin in origins):
        raise ScenarioError(
            f"'{path}': module '{top}' is in the scenario's folder '{folder}', but Python imports it from "
            f"{', '.join(map(str, origins)) or 'elsewhere'}: rename one of the two, or start a new process if another "
            "scenario has imported the other module"
        )
