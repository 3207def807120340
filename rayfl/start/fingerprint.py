"""A digest of everything that the result of a scenario depends on."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

import rayfl
from rayfl.config.scenario import CHANGES_NO_RESULT
from rayfl.data.dataset import Samples
from rayfl.data.inputs import Ragged, named_parts
from rayfl.data.store import ShardStore
from rayfl.engine.job import Job
from rayfl.start.users_code import code_digests


def fingerprint(job: Job, start: str | None = None) -> str:
    """The digest, in hexadecimal: of the scenario, its data, the code of rayfl and of the user, and the libraries.

    Args:
        job: The scenario with its data.
        start: The digest of what it starts from itself.
    """
    scenario = job.scenario
    tables = scenario.model_dump(mode="json", exclude={*CHANGES_NO_RESULT, "start"})
    parts = {
        "scenario": tables,
        "start": [start, scenario.start and [scenario.start.head, scenario.start.ignore]],
        "data": _data_digest(job.result.store),
        "code": code_digests(tables),
        "rayfl": _package_digest(Path(rayfl.__file__).parent),
        "libraries": {name: version(name) for name in ("torch", "torchvision", "numpy")},
        "device": "cuda" if scenario.resources.uses_cuda else torch.backends.cpu.get_cpu_capability(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _data_digest(store: ShardStore) -> str:
    """Of files that were read, their digests; of data without files, all of it."""
    digest = hashlib.sha256(f"{store.provenance.source} {store.provenance.description}".encode())
    for _, of_file in store.provenance.files:
        digest.update(of_file.encode())
    if not store.provenance.files:
        held = [held.samples for held in store.held_out.values()]
        for samples in (store.train, store.test, *held, *([store.server] if store.server else [])):
            _add_samples(digest, samples)
    digest.update(store.train_shards.rows.tobytes() + store.train_shards.offsets.tobytes())
    return digest.hexdigest()


def _add_samples(digest: hashlib._Hash, samples: Samples) -> None:
    for name, part in named_parts(samples.x).items():
        digest.update(name.encode())
        for row in part[:] if isinstance(part, Ragged) else [np.asarray(part)]:
            digest.update(f"{row.dtype} {row.shape}".encode() + np.ascontiguousarray(row).tobytes())
    digest.update(np.ascontiguousarray(samples.y).tobytes())


def _package_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()
