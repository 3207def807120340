"""User modules next to the scenario that names them: imported without PYTHONPATH, in this process and on Ray."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rayfl
from rayfl.config.loader import load_scenario
from rayfl.errors import ScenarioError
from rayfl.runs.resolution import resolve
from rayfl.studies.grid.cell_runs import run_cell
from rayfl.studies.grid.cells import cells_of
from rayfl.studies.grid.schema import load_grid

SCENARIO = """
model = "mlp"
phases = [{{ name = "p", rounds = 1, cohort = 2, local = {{ batch_size = 4 }} }}]
[data]
name = "{module}:points"
clients = 3
"""
DATA = """
import numpy as np

def points():
    x = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    return x, x.argmax(axis=1), x, x.argmax(axis=1)
"""


def project(folder: Path, module: str, scenario: str = "") -> Path:
    """A scenario and its module, outside the working directory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(DATA)
    (folder / "own.toml").write_text(SCENARIO.format(module=module) + scenario)
    return folder / "own.toml"


def ran(path: str | Path | dict[str, Any], out: Path, **how: Any) -> rayfl.Result:
    return rayfl.run(path, out=out, starts=out / "starts", console=Console(quiet=True), **{"backend": "inline", **how})


def test_a_module_beside_the_scenario_is_found_and_what_the_run_wrote_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sys.path[:]
    first = ran(project(tmp_path / "a", "beside_one"), tmp_path)
    assert first.scenario.module_folders == (str(tmp_path / "a"),)
    sys.path[:] = before  # as in a new process
    monkeypatch.delitem(sys.modules, "beside_one")
    again = ran(first.directory / "scenario.toml", tmp_path)
    assert again.metrics["test_loss"] == first.metrics["test_loss"]


def test_a_module_beside_the_base_and_a_package_beside_the_scenario_are_found(tmp_path: Path) -> None:
    project(tmp_path / "base", "beside_base")
    package = tmp_path / "own" / "beside_package"
    package.mkdir(parents=True)
    (package / "nets.py").write_text("from rayfl.models.mlp import MLP\nclass Own(MLP):\n    pass\n")
    (tmp_path / "own" / "x.toml").write_text('base = "../base/own.toml"\nmodel = "beside_package.nets:Own"\n')
    loaded = load_scenario(tmp_path / "own" / "x.toml")
    assert loaded.module_folders == (str(tmp_path / "own"), str(tmp_path / "base"))
    assert resolve(loaded).model.name == "beside_package.nets:Own"


def test_a_pickled_scenario_finds_the_keys_of_its_schedule_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "beside_keys.py").write_text(
        "from rayfl.schedules import BasePhase\n\nclass OwnPhase(BasePhase):\n    laps: int = 1\n\n"
        "class Own:\n    config = OwnPhase\n"
    )
    path = project(tmp_path, "beside_data")
    path.write_text(path.read_text().replace("cohort = 2", "schedule = 'beside_keys:Own', laps = 3"))
    loaded = load_scenario(path)
    pickled = pickle.dumps({"first": loaded})
    assert pickle.loads(pickled) == {"first": loaded}  # noqa: S301 - made here
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)['first'].phases[0].laps)"
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"3\n", b"")


def test_folders_without_named_modules_stay_out_of_the_import_path(tmp_path: Path) -> None:
    path = project(tmp_path, "beside_unused")
    path.write_text(SCENARIO.format(module="tests.user_code").replace("points", "vectors"))
    before = sys.path[:]
    assert load_scenario(path).module_folders == ()
    assert sys.path == before


@pytest.mark.parametrize("imported", [True, False])
def test_a_module_that_another_one_hides_is_rejected(imported: bool, tmp_path: Path) -> None:
    name = f"beside_twice_{imported}".lower()
    first, second = project(tmp_path / "a", name), project(tmp_path / "b", name)
    loaded = load_scenario(first)
    if imported:
        resolve(loaded)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(second)
    here, there = tmp_path / "b", tmp_path / "a" / f"{name}.py"
    assert str(caught.value) == (
        f"scenario 'own':\n'{name}:points': module '{name}' is in the scenario's folder '{here}', but Python imports "
        f"it from {there}: rename one of the two, or start a new process if another scenario has imported the "
        "other module"
    )


def test_a_grids_rows_name_modules_beside_its_file(tmp_path: Path) -> None:
    project(tmp_path / "scenarios", "beside_scenario")
    project(tmp_path / "grids", "beside_grid")
    (tmp_path / "grids" / "own.grid.toml").write_text(
        'scenario = "../scenarios/own.toml"\nrows.a.data.name = "beside_grid:points"\ncolumns.b = {}\n'
    )
    (cell,) = cells_of(load_grid(tmp_path / "grids" / "own.grid.toml"), tmp_path)
    assert cell.scenario.module_folders == (str(tmp_path / "scenarios"), str(tmp_path / "grids"))
    assert run_cell(cell, tmp_path / "none") is None


@pytest.mark.slow
def test_the_console_script_sees_the_working_directory_as_python_does(tmp_path: Path) -> None:
    project(tmp_path / "work", "beside_work")
    project(tmp_path / "own", "beside_own")
    script = "import sys; sys.path.pop(0); from rayfl.__main__ import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(Path(rayfl.__file__).parent.parent)}
    for command in (["-m", "rayfl"], ["-c", script]):
        done = subprocess.run(
            [sys.executable, *command, "run", "../own/own.toml", "data.name=beside_work:points", "--show"],
            cwd=tmp_path / "work", env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
