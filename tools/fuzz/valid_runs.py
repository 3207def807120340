"""Scenarios, grids, weights and run folders."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.scenario import Scenario
from rayfl.engine.state.state_store import FolderStore
from rayfl.errors import RayflError

SCENARIO: dict[str, Any] = {
    "name": "tiny",
    "title": "A scenario with a bit of everything",
    "seed": 3,
    "data": {"name": "handwriting", "clients": 6, "partition": {"name": "dirichlet", "beta": 0.5}, "source": "auto"},
    "model": {"name": "mlp", "hidden": [4]},
    "phases": [
        {
            "name": "cyclic",
            "schedule": "relay",
            "rounds": 2,
            "cohort": 2,
            "local": {"steps": 1, "batch_size": 2, "lr": 0.1, "momentum": 0.5, "lr_decay": 0.9},
        },
        {
            "name": "federated",
            "rounds": 50,
            "cohort": 0.5,
            "algorithm": {"name": "scaffold"},
            "local": {"steps": 1, "batch_size": 2, "lr": 0.1, "clip_norm": 1.0},
        },
    ],
    "evaluation": {"every": 1, "metrics": ["accuracy", "macro_f1"]},
    "callbacks": [{"name": "early_stopping", "patience": 50}],
    "checkpoint": {"rounds": 1},
    "resources": {"hosts": 1},
    "quick": {"phases.cyclic.rounds": 1, "data": {"clients": 4}},
}
_GRID: dict[str, Any] = {
    "title": "A grid",
    "scenario": "tiny.toml",
    "seeds": [0, 1],
    "metrics": ["best", "last"],
    "overrides": {"data.clients": 5},
    "quick": {"phases.0.rounds": 1},
    "rows": {"SCAFFOLD": {}, "FedProx": {"phases.federated.algorithm": {"name": "fedprox", "mu": 0.1}}},
    "columns": {"β = 0.1": {"data.partition.beta": 0.1}, "β = 1": {"data.partition.beta": 1.0}},
    "published": {"best": {"SCAFFOLD": {"β = 0.1": 81.7, "β = 1": [80.0, 0.5]}}},
    "skip": ["FedProx/β = 1"],
    "note": "none",
}
_OVERRIDES = ("seed=1", "phases.cyclic.rounds=10", "phases.1.algorithm=fedprox", "data.partition={name='iid'}")


def scenario(folder: Path) -> None:
    """A scenario file."""
    _toml(folder / "tiny.toml", SCENARIO)


def tables(folder: Path) -> None:
    """The tables of a scenario, as a program passes them."""
    (folder / "tables.json").write_text(json.dumps(SCENARIO))


def overrides(folder: Path) -> None:
    """Overrides from a command line, one per line."""
    (folder / "overrides.txt").write_text("\n".join(_OVERRIDES))


def grid(folder: Path) -> None:
    """A grid file and its scenario."""
    scenario(folder)
    _toml(folder / "table.grid.toml", _GRID)


def weights(folder: Path) -> None:
    """A state dict as safetensors, and in both formats of `torch.save`."""
    state = {"layers.0.weight": np.ones((4, 6), np.float32), "layers.0.bias": np.zeros(4, np.float32)}
    safetensors.numpy.save_file(state, folder / "weights.safetensors")
    tensors = {name: torch.from_numpy(value) for name, value in state.items()}
    torch.save(tensors, folder / "zipped.pt")
    torch.save(tensors, folder / "legacy.pt", _use_new_zipfile_serialization=False)


class _Fails(Callback):
    """Ends a run once it has two checkpoints, which are written during later rounds."""

    def on_round(self, run: RunSoFar) -> None:
        if len(list(run.folder.glob("checkpoints/*.json"))) == 2:
            raise RuntimeError("left on purpose")


def unfinished_run(folder: Path) -> None:
    """The folder of a run that failed, with two checkpoints."""
    with suppress(RayflError):
        _run(folder / "run", callbacks=[_Fails(name="fails")])
    files: list[Path] = []
    while files != (files := sorted(folder.rglob("*"))):  # a third one may still be written
        time.sleep(0.5)


def states(folder: Path) -> None:
    """States of clients and of a server."""
    store = FolderStore(folder / "states")
    for number in range(3):
        store.write({"control": np.full(4, number, np.float32), "steps": np.array([number])})


def places(folder: Path) -> None:
    """Names of states in a store's folder, beside a file that none of them may reach."""
    states(folder)
    (folder / "canary").touch()
    found = [path.relative_to(folder / "states").as_posix() for path in folder.glob("states/*/*")]
    (folder / "places.json").write_text(json.dumps({"places": [*found, "ab/missing", "link/missing"]}))


def finished_run(folder: Path) -> None:
    """The folder of a finished run."""
    _run(folder / "run")


def resumed(folder: Path) -> rayfl.Result:
    """Resumes the run of `unfinished_run`."""
    return rayfl.run(resume=folder / "run", backend="inline", console=Console(quiet=True))


def _run(folder: Path, **given: Any) -> None:
    tables = {key: value for key, value in SCENARIO.items() if key != "quick"}
    rayfl.run(
        Scenario.from_tables(tables | {"callbacks": []}),
        backend="inline", folder=folder, console=Console(quiet=True), **given,
    )  # fmt: skip


def _toml(file: Path, content: dict[str, Any]) -> None:
    import tomli_w

    file.write_text(tomli_w.dumps(content), encoding="utf-8")
