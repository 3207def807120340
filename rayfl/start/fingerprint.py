"""A digest of everything that the result of a scenario depends on."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import sysconfig
import uuid
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import rayfl
from rayfl.engine.job import Job
from rayfl.registry import import_object

NOT_OF_THE_RESULT = ("name", "title", "resources")
"""Keys of a scenario that change no result; what kind of device it runs on is looked at apart."""


def fingerprint(job: Job, start: str | None = None) -> str:
    """The digest, in hexadecimal: of the scenario, its data, the code of rayfl and of the user, and the libraries.

    The user's code is every module that the scenario names, with the modules that these import, as far as they belong
    neither to Python nor to an installed package. An object of a notebook, which has no file, never has the same digest
    twice.

    Args:
        job: The scenario with its data.
        start: The digest of what it starts from itself.
    """
    scenario, store = job.scenario, job.result.store
    tables = scenario.model_dump(mode="json", exclude={*NOT_OF_THE_RESULT, "start"})
    parts = {
        "scenario": tables,
        "start": [start, scenario.start and [scenario.start.head, scenario.start.ignore]],
        "data": [store.provenance.source, store.provenance.description, [d for _, d in store.provenance.files]],
        "shards": hashlib.sha256(store.train_shards.rows.tobytes() + store.train_shards.offsets.tobytes()).hexdigest(),
        "code": {module.__name__: _source_digest(module) for module in users_modules(_names(tables))},
        "rayfl": _package_digest(Path(rayfl.__file__).parent),
        "libraries": {name: version(name) for name in ("torch", "torchvision", "numpy")},
        "device": "cuda" if scenario.resources.uses_cuda else torch.backends.cpu.get_cpu_capability(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def users_modules(names: Iterator[str]) -> list[ModuleType]:
    """The user's own modules behind some import paths, `package.module:object`, in alphabetical order."""
    found: dict[str, ModuleType] = {}
    waiting = []
    for name in names:
        import_object(name)
        waiting.append(sys.modules[name.partition(":")[0]])
    while waiting:
        module = waiting.pop()
        if module.__name__ in found or not _is_users(module):
            continue
        found[module.__name__] = module
        for value in vars(module).values():
            owner = (
                value if isinstance(value, ModuleType) else sys.modules.get(getattr(value, "__module__", None) or "")
            )
            if owner is not None:
                waiting.append(owner)
    return [found[name] for name in sorted(found)]


def _names(value: Any) -> Iterator[str]:
    """Import paths among the texts of nested tables."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _names(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _names(inner)
    elif isinstance(value, str):
        module, _, attribute = value.partition(":")
        if attribute.isidentifier() and all(part.isidentifier() for part in module.split(".")):
            yield value


def _module_of(value: Any) -> ModuleType | None:
    name = getattr(value, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None


def _is_users(module: ModuleType) -> bool:
    package = module.__name__.partition(".")[0]
    if package == "rayfl" or package in sys.builtin_module_names:
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ == "__main__"
    installed = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not any(Path(file).is_relative_to(folder) for folder in installed)


def _source_digest(module: ModuleType) -> str:
    try:
        return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
    except (OSError, TypeError):  # a notebook
        return uuid.uuid4().hex


def _package_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()
