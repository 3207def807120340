"""Digests of the users' code: of the modules that scenarios name, and of all that these import."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from rayfl.config.scenario import Scenario
from rayfl.config.user_modules import import_paths


def changed_code(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The differences in words: `'mydata'`, `'scipy' (scipy 1.15, now scipy 1.16)`, `'helpers' (not used before)`."""
    words = []
    for name in sorted({*before, *now}):
        one, other = before.get(name), now.get(name)
        if one == other:
            continue
        if one is None or other is None:
            words.append(f"'{name}' ({'not used before' if one is None else 'no longer used'})")
        else:
            words.append(f"'{name}'" + (f" ({one}, now {other})" if " " in one + other else ""))
    return words


_PARSING = threading.Lock()
"""Python 3.11's parser miscounts its recursion depth if two threads use it at once."""


def code_digests(scenarios: Iterable[Scenario]) -> dict[str, str]:
    """A digest of every module that scenarios name, and of all modules that these import, directly or not.

    Strings of the form `package.module:object` name modules, if they exist. Modules of Python and rayfl are omitted.
    For an installed package, its version replaces the digest. Objects defined in a notebook have no file, and never get
    the same digest twice.
    """
    found: dict[str, str] = {}
    tables = [scenario.model_dump(mode="json") for scenario in scenarios]
    waiting = [name.partition(":")[0] for name in import_paths(tables)]
    while waiting:
        name = waiting.pop()
        package = name.partition(".")[0]
        if name in found or package == "rayfl" or (package in sys.stdlib_module_names and name != "__main__"):
            continue
        origin = _origin(name)
        if origin is None:
            continue
        if _is_installed(origin):
            for distribution in _distributions().get(package, []):
                found[package] = f"{distribution} {_version(distribution)}"
        elif not origin.is_file():
            found[name] = uuid.uuid4().hex
        else:
            source = origin.read_bytes()
            found[name] = hashlib.sha256(source).hexdigest()
            if origin.suffix == ".py":
                waiting += _imported(source, name, origin.name == "__init__.py")
    return dict(sorted(found.items()))


def _origin(module: str) -> Path | None:
    """The file of a module; a path without suffix if it has no file, None if the module does not exist."""
    if module == "__main__":
        return Path(getattr(sys.modules["__main__"], "__file__", None) or "notebook")
    try:
        spec = find_spec(module)
    except Exception:  # it imports the module's parent packages, whose code may raise anything
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)


@lru_cache(maxsize=256)
def _imported(source: bytes, module: str, is_package: bool) -> tuple[str, ...]:
    """Names of modules that a module may import; some may be objects in modules instead."""
    return tuple(_names_imported(source, module, is_package))


def _names_imported(source: bytes, module: str, is_package: bool) -> Iterator[str]:
    try:
        with _PARSING:
            tree = ast.parse(source)
    except (SyntaxError, ValueError):  # importing it will report the error
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parents = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parents, *([base] if base else [])])
            yield base
            for alias in node.names:
                yield f"{base}.{alias.name}"


def _is_installed(origin: Path) -> bool:
    """Whether a file belongs to a package installed in this environment, for the system or for the user."""
    return bool({"site-packages", "dist-packages"}.intersection(origin.parts)) or any(
        origin.is_relative_to(folder) for folder in _installed_folders()
    )


@cache
def _installed_folders() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(kind) for kind in ("purelib", "platlib")})


_version = cache(version)


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()
