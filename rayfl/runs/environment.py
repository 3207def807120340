"""Everything that a result depends on, the users' code included: described for environment.json, and as one digest."""

from __future__ import annotations

import ast
import hashlib
import json
import marshal
import os
import platform
import struct
import sys
import sysconfig
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, lru_cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from pathlib import Path
from typing import Any

import torch

import rayfl
from rayfl.config.scenario import CHANGES_NO_RESULT, Scenario
from rayfl.config.user_modules import import_paths, source_of
from rayfl.engine.plan.devices import build_profiles
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.workload import Workload
from rayfl.runs.archive import GridPlace
from rayfl.runs.start_chain import with_starts


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
    the same digest twice. An imported module keeps the digest that its file had at first, until it is reloaded.
    """
    digests: dict[str, str] = {}
    tables = [scenario.model_dump(mode="json") for scenario in scenarios]
    waiting = [name.partition(":")[0] for name in import_paths(tables)]
    while waiting:
        name = waiting.pop()
        package = name.partition(".")[0]
        if name in digests or package == "rayfl" or (package in sys.stdlib_module_names and name != "__main__"):
            continue
        origin = source_of(name)
        if origin is None:
            continue
        if _is_installed(origin):
            for installed in _distributions_of(package):
                digests[package] = f"{installed} {_version_of_code(installed)}"
        elif not origin.is_file():
            digests[name] = uuid.uuid4().hex
        else:
            source = origin.read_bytes()
            digests[name] = _as_imported(name, hashlib.sha256(source).hexdigest())
            if origin.suffix == ".py":
                waiting += _imported(source, name, origin.name == "__init__.py")
    return dict(sorted(digests.items()))


_IMPORTED: dict[str, tuple[object, str]] = {}
"""By module: its spec, which a reload replaces, and the digest of its file."""


def _as_imported(name: str, digest: str) -> str:
    """The digest of the code that runs: editing the file of an imported module does not change it."""
    if (module := sys.modules.get(name)) is None:
        return digest
    spec = getattr(module, "__spec__", None) or module
    if name not in _IMPORTED or _IMPORTED[name][0] is not spec:
        _IMPORTED[name] = spec, uuid.uuid4().hex if _is_of_other_source(spec) else digest
    return _IMPORTED[name][1]


def _is_of_other_source(spec: Any) -> bool:
    """Whether Python's compiled file, which an import brings up to date, is of another source than the file now has."""
    if type(getattr(spec, "loader", None)) is not SourceFileLoader or sys.dont_write_bytecode or not spec.cached:
        return False
    try:
        compiled, source = Path(spec.cached).read_bytes(), Path(spec.origin)
        flags, seconds, size = struct.unpack("<4x3I", compiled[:16])
        if flags or (seconds, size) == (int(source.stat().st_mtime) & 0xFFFFFFFF, source.stat().st_size & 0xFFFFFFFF):
            return False
        with _PARSING:
            now = spec.loader.source_to_code(source.read_bytes(), spec.origin)
        before = marshal.loads(compiled[16:])  # noqa: S302 - as Python itself does
        return bool(before != now) and os.access(Path(spec.cached).parent, os.W_OK)
    except SyntaxError:  # in the middle of an edit
        return True
    except (OSError, ValueError, EOFError, TypeError, struct.error):
        return False


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


_version_of_code = cache(version)


@cache
def _distributions_of(package: str) -> Sequence[str]:
    """Names of the distributions that a package was installed with; reads all of them only if their names differ."""
    try:
        found = distribution(package)
    except PackageNotFoundError:
        return _all_distributions().get(package, [])
    owns = f"{package}/__init__.py," in (found.read_text("RECORD") or "")
    return [found.name] if owns else _all_distributions().get(package, [])


_all_distributions = cache(packages_distributions)


PACKAGES = ("torch", "torchvision", "torchmetrics", "numpy", "ray", "pydantic", "pyarrow")


def describe_environment(
    run_plan: RunPlan, backend: str, hosts: Sequence[Mapping[str, str]], place: GridPlace | None = None
) -> dict[str, Any]:
    """Returns everything besides the scenario that a result can depend on, and where it was computed.

    Args:
        run_plan: The run's plan.
        backend: `ray` or `inline`.
        hosts: For each host its node, its device, and the PyTorch facts on which the last bits depend.
        place: Its place in a grid.
    """
    workload = run_plan.result
    store, provenance = workload.store, workload.store.provenance
    return {
        "seed": run_plan.scenario.seed,
        "backend": backend,
        "hosts": [dict(host) for host in hosts],
        "driver": {"node": platform.node(), "platform": platform.platform(), "cpus": os.cpu_count()},
        "python": platform.python_version(),
        "packages": {"rayfl": rayfl.__version__}
        | {name: installed for name in PACKAGES if (installed := _version(name))},
        "numerics": run_plan.scenario.numerics.model_dump(mode="json"),
        "data": {
            "name": store.name,
            "seed": run_plan.scenario.data_seed,
            "source": provenance.source,
            "description": provenance.description,
            "files": [{"path": path, "sha256": digest} for path, digest in provenance.files],
            "digest": provenance.digest,
            "clients": store.num_clients,
            "summary": store.summary(),
            "test_samples": store.num_test_samples,
            "evaluated_samples": len(store.test),
        },
        "traces": [{"path": path, "sha256": digest} for path, digest in run_plan.devices.files]
        if run_plan.devices
        else [],
        "code": dict(run_plan.code),
        "start": None if run_plan.origin is None else dict(run_plan.origin),
        "task": {"name": workload.task.name, "outputs": workload.num_outputs},
        "headline": asdict(run_plan.headline),
        "place": None if place is None else place._asdict(),
        "model": _model(workload),
        "phases": _phases(run_plan),
    }


def _model(workload: Workload) -> dict[str, Any]:
    initial = workload.initial
    return {"name": workload.network.name, "vector_length": len(initial.vector), "weights": initial.memory_format}


def _phases(run_plan: RunPlan) -> list[dict[str, Any]]:
    """The task and network of each phase, and the tensors that it took over if those are not all of them."""
    return [
        {
            "name": phase.name,
            "task": {"name": workload.task.name, "outputs": workload.num_outputs},
            "model": _model(workload),
            "handover": asdict(run_plan.handovers[phase.name]) if phase.name in run_plan.handovers else None,
        }
        for phase, workload in zip(run_plan.scenario.phases, run_plan.workloads, strict=True)
    ]


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def fingerprint(scenario: Scenario, data: str, clients: int, start: str | None) -> str:
    """Hexadecimal digest of the scenario, its data, rayfl's code, the user's code, and the libraries.

    Args:
        scenario: The resolved scenario.
        data: A digest of its data.
        clients: Number of its clients.
        start: The digest of the scenario's own start.
    """
    simulated = scenario.participation
    tables = scenario.model_dump(mode="json", exclude={*CHANGES_NO_RESULT, "start"})
    parts = {
        "scenario": tables,
        "start": [start, scenario.start and [scenario.start.head, scenario.start.ignore]],
        "data": data,
        "traces": build_profiles(simulated, scenario.seed, clients).digests if simulated else [],
        "code": code_digests(with_starts(scenario)),
        "rayfl": _package_digest(Path(rayfl.__file__).parent),
        "libraries": {name: version(name) for name in ("torch", "torchvision", "numpy")},
        "device": "cuda" if scenario.resources.uses_cuda else torch.backends.cpu.get_cpu_capability(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _package_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()
