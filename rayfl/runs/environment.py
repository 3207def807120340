"""Everything that a result depends on: described for environment.json, and as one digest.

environment.json has the versions, devices, hosts and data of a run.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import rayfl
from rayfl.config.scenario import CHANGES_NO_RESULT, Scenario
from rayfl.engine.plan.devices import build_profiles
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.workload import Workload
from rayfl.runs.archive import GridPlace
from rayfl.runs.digests import code_digests
from rayfl.runs.start_chain import with_starts

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
        "packages": {"rayfl": rayfl.__version__} | {name: found for name in PACKAGES if (found := _version(name))},
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
