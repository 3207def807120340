"""A run by a virtual clock leaves its time in the records, and goes on with it when it is resumed."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rayfl
from tests.runs.lifecycle.scene import EndsAfter, assert_same, rows
from tests.runs.lifecycle.scene import run_scene as run


def write_trace(path: Path, slowest: float) -> None:
    pq.write_table(pa.table({"speed": [slowest, 4.0, 30.0]}), path)


def devices(trace: Path) -> dict[str, Any]:
    return {
        "steps_per_s": {"file": str(trace), "column": "speed"},
        "up_bytes_per_s": {"uniform": [1000, 9000]},
        "dropout": 0.2,
        "availability": 0.8,
        "transmit_watts": 2.0,
    }


def test_a_resumed_run_goes_on_with_its_virtual_time_and_its_traces(tmp_path: Path) -> None:
    trace = tmp_path / "devices.parquet"
    write_trace(trace, slowest=1.0)
    undisturbed = run(tmp_path / "whole", participation=devices(trace))
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path / "left", EndsAfter(name="ends", round=5), participation=devices(trace))

    write_trace(trace, slowest=2.0)
    with pytest.raises(rayfl.ScenarioError, match=r"participation: .* began with other traces: their files have"):
        run(tmp_path / "left", resume=True, participation=devices(trace))
    write_trace(trace, slowest=1.0)
    with pytest.raises(rayfl.ScenarioError, match=r"participation.dropout: 0.2, now 0.3"):
        run(tmp_path / "left", resume=True, participation=devices(trace) | {"dropout": 0.3})
    assert_same(run(tmp_path / "left", resume=True, participation=devices(trace)), undisturbed)

    found = rows(undisturbed.directory)
    for column in (
        "simulated_seconds",
        "transfer_seconds",
        "training_seconds",
        "energy_joules",
        "unavailable",
        "dropped",
    ):
        values = [row[column] for row in found]
        assert values == sorted(values), column
        assert values[0] < values[-1], column
    environment = json.loads((undisturbed.directory / "environment.json").read_text())
    assert environment["traces"] == [{"path": str(trace), "sha256": sha256(trace.read_bytes()).hexdigest()}]
