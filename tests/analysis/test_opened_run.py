"""Finished runs are opened again with the weights that they started from."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from rayfl.analysis.run_folder import RunFolder
from rayfl.errors import DataError
from tests.analysis.scene import finished, opened

BEFORE = """
data.name = "tests.algorithms.scene:people"
model = "tests.algorithms.scene:TanhNet"
[[phases]]
name = "before"
rounds = 1
cohort = 3
"""


def test_a_start_is_found_where_the_run_found_it_or_where_its_grid_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYFL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "before.toml").write_text(BEFORE, encoding="utf-8")
    run = finished(tmp_path / "runs", named=(), start={"scenario": str(tmp_path / "before.toml")})
    (kept,) = (tmp_path / "cache" / "starts").glob("*/model.safetensors")
    weights = load_file(kept)["first.weight"]
    monkeypatch.setenv("RAYFL_CACHE", str(tmp_path / "empty"))
    for place in ("here", "moved"):
        if place == "moved":
            shutil.move(tmp_path / "cache" / "starts", tmp_path / "grid" / "starts")
            shutil.move(run.path, tmp_path / "grid" / "row" / "seed_0")
            run = RunFolder.read(tmp_path / "grid" / "row" / "seed_0")
        again = opened(run)
        slot = next(slot for slot in again.workload(0).initial.layout if slot.name == "first.weight")
        assert np.array_equal(again.vector(0)[slot.offset : slot.offset + slot.size].reshape(slot.shape), weights)
    shutil.move(run.path, tmp_path / "alone")
    with pytest.raises(DataError, match="the model that it started from is no longer in"):
        opened(RunFolder.read(tmp_path / "alone"))
