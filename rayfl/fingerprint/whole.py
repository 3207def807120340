"""A digest of everything that a scenario's result depends on."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import torch

import rayfl
from rayfl.config.scenario import CHANGES_NO_RESULT
from rayfl.data.store import ShardStore
from rayfl.engine.job import Job


def fingerprint(job: Job, start: str | None = None) -> str:
    """Hexadecimal digest of the scenario, its data, rayfl's code, the user's code, and the libraries.

    Args:
        job: The scenario with its data.
        start: The digest of the scenario's own start.
    """
    scenario = job.scenario
    tables = scenario.model_dump(mode="json", exclude={*CHANGES_NO_RESULT, "start"})
    parts = {
        "scenario": tables,
        "start": [start, scenario.start and [scenario.start.head, scenario.start.ignore]],
        "data": _data_digest(job.result.store),
        "traces": job.devices.digests if job.devices else [],
        "code": dict(job.code),
        "rayfl": _package_digest(Path(rayfl.__file__).parent),
        "libraries": {name: version(name) for name in ("torch", "torchvision", "numpy")},
        "device": "cuda" if scenario.resources.uses_cuda else torch.backends.cpu.get_cpu_capability(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _data_digest(store: ShardStore) -> str:
    digest = hashlib.sha256(store.provenance.digest.encode())
    for array in (store.train_shards.rows, store.train_shards.offsets):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _package_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()
