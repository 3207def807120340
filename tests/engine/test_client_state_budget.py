"""Client states that do not fit into their budget are on disk, and change no bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.engine.state.segments import stored_states
from rayfl.engine.state.state_store import FolderStore
from rayfl.engine.state.tensor_memory import KeptTensor, TensorMemory
from rayfl.errors import ScenarioError
from rayfl.models.tensors import split
from tests.engine.scenes import cast, prepared, run_on_hosts, snapshot_after, without_clock

LOCAL = {"epochs": 1, "batch_size": 4, "lr": 0.1, "momentum": 0.5}
PHASES: list[dict[str, Any]] = [
    {"name": "scaffold", "rounds": 3, "cohort": 6, "algorithm": "scaffold"},
    {"name": "moon", "schedule": "relay", "rounds": 2, "cohort": 6, "algorithm": "moon"},
    {"name": "ditto", "rounds": 3, "cohort": 6, "algorithm": {"name": "ditto", "mu": 0.5}},
    {"name": "split", "rounds": 2, "cohort": 6, "algorithm": {"name": "fedmeta", "split": "round", "meta_lr": 0.2}},
]
"""States of phases and of rounds; replaced and read once a round, in an exchange or an evaluation."""


def job_with(gigabytes: float, **changes: Any) -> Any:
    return prepared(
        data={"name": "tests.algorithms.scene:people", "server_share": 0.1},
        model={"name": "tests.algorithms.scene:TanhNet", "dropout": 0.3},
        phases=[{"local": LOCAL if phase["name"] != "split" else {"lr": 0.3}} | phase for phase in PHASES],
        evaluation={"every": 2, "client_model": "personal"},
        resources={"relay": "spread", "client_state_gb": gigabytes},
        **changes,
    )


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[TensorMemory, tuple[int, int]]:
    """The most bytes that every memory held, and had on disk."""
    most: dict[TensorMemory, tuple[int, int]] = {}
    keep = TensorMemory.keep

    def watched(self: TensorMemory, tensor: torch.Tensor) -> KeptTensor:
        kept = keep(self, tensor)
        in_memory, on_disk = most.get(self, (0, 0))
        most[self] = max(in_memory, self.bytes_in_memory), max(on_disk, self.bytes_on_disk)
        return kept

    monkeypatch.setattr(TensorMemory, "keep", watched)
    return most


@pytest.mark.parametrize("budget_bytes", [0, 1500])
def test_a_run_ends_with_the_same_bits_whatever_its_hosts_keep_in_memory(
    budget_bytes: int, held: dict[TensorMemory, tuple[int, int]]
) -> None:
    model, events = run_on_hosts(job_with(1), 1)
    assert all(on_disk == 0 for _, on_disk in held.values())
    assert max(in_memory for in_memory, _ in held.values()) > 2000, "or the budgets would bound nothing"
    held.clear()
    bounded, told = run_on_hosts(job_with(budget_bytes / 2**30), 2)
    assert np.array_equal(bounded, model)
    assert repr(without_clock(told)) == repr(without_clock(events))
    assert len(held) == 2
    for in_memory, on_disk in held.values():
        assert in_memory <= budget_bytes
        assert on_disk > 0


def test_snapshots_are_the_same_wherever_states_are(tmp_path: Path, held: dict[TensorMemory, tuple[int, int]]) -> None:
    """Byte for byte in the store; and what is restored keeps to the budget."""
    whole, _ = run_on_hosts(job_with(1), 1)
    budgets = (1.0, 1000 / 2**30)
    manifests = [snapshot_after(job_with(budget), 7, 2, FolderStore(tmp_path))[0] for budget in budgets]
    assert manifests[0] == manifests[1]
    assert len(stored_states(manifests[0].clients, FolderStore(tmp_path))) > 6
    held.clear()
    scheduler, server = cast(job_with(1000 / 2**30), 1)
    scheduler.restore(manifests[0], FolderStore(tmp_path))
    ((in_memory, on_disk),) = held.values()
    assert 0 < in_memory <= 1000 < on_disk
    list(scheduler.run())
    assert np.array_equal(split(server.committed()[1])[0], whole)


def test_a_budget_where_no_client_keeps_anything_is_rejected() -> None:
    with pytest.raises(ScenarioError, match=r"resources\.client_state_gb: has no effect.*leave it out"):
        prepared(resources={"client_state_gb": 2})
