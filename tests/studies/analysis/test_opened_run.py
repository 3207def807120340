"""Finished runs are opened again with the weights that they started from."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from rayfl.config.section import Named
from rayfl.errors import DataError
from rayfl.studies.analysis.run_folder import RunFolder
from tests.callbacks.scene import PLAIN, RELAY
from tests.privacy.samples.scene import dp
from tests.studies.analysis.scene import KEEP, analysed, finished, opened

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


def test_a_run_keeps_the_models_at_the_ends_of_its_phases_which_analyses_read(
    tmp_path: Path, finished_run: RunFolder
) -> None:
    run = finished(tmp_path, named=())
    assert sorted(path.relative_to(run.path).as_posix() for path in run.path.rglob("*.safetensors")) == [
        "model.safetensors",
        "models/phase_1_cyclic.safetensors",
    ]
    assert list(run.models) == [2, 6]
    for round in run.models:
        assert np.array_equal(opened(run).vector(round), opened(finished_run).vector(round))
    assert [row["round"] for row in analysed("heterogeneity", run, samples=4)] == [0, 2, 6]
    assert analysed("landscape", run, models=["initial", 2, "final"], points=3, samples=10)


def test_of_a_phase_that_ends_early_the_last_model_is_kept(tmp_path: Path) -> None:
    """The clients' budgets last for some of the 9 rounds."""
    private = {**RELAY["local"], "dp": dp(max_epsilon=6.3, accountant="rdp")}
    after = {**PLAIN["local"], "dp": dp(accountant="rdp")}
    phases = [RELAY | {"rounds": 9, "cohort": 8, "local": private}, PLAIN | {"rounds": 1, "local": after}]
    run = finished(tmp_path, named=(KEEP,), phases=phases, model={"name": "tests.algorithms.scene:TanhNet"})
    last = max(round for round in run.models if round < 9)
    assert last < 8
    end = load_file(run.path / "models" / "phase_1_cyclic.safetensors")
    regular = load_file(run.models[last])
    assert end.keys() == regular.keys()
    assert all(np.array_equal(end[name], regular[name]) for name in end)


def ends_only(run: RunFolder, to: Path) -> Path:
    """A copy of a folder without the models of `periodic_model`."""
    return shutil.copytree(run.path, to / "run", ignore=shutil.ignore_patterns("round_*"))


@pytest.mark.parametrize(("rounds", "every"), [([0, 2, 3, 5], 1), ([0, 4, 6], 4)])
def test_a_model_that_was_not_kept_is_named_with_the_command_that_keeps_it(
    rounds: list[int], every: int, finished_run: RunFolder, tmp_path: Path
) -> None:
    best = (Named.model_validate("best_model"),)
    run = RunFolder(ends_only(finished_run, tmp_path))
    run.scenario = finished_run.scenario.model_copy(update={"callbacks": best})
    with pytest.raises(DataError) as caught:
        run.check_kept(rounds)
    assert str(caught.value) == (
        f"'{run.path}' lacks the model after round {3 if every == 1 else 4} in 'models/' (it has 2 of 6); run the "
        f"scenario again with the callback that keeps it (beside 'best_model'): rayfl run {run.path}/scenario.toml "
        f"'callbacks=[{{ name = \"periodic_model\", every = {every} }}]'"
    )
