"""A grid continues only with the code and data of its finished runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rayfl
from rayfl import __version__
from rayfl.cli.grid import main
from rayfl.config.data import Data
from rayfl.data.store import ShardStore, build_store
from rayfl.studies.grid.cells import Cell

DATA = """
import numpy as np
from my_helpers import SCALE

def made(seed: int):
    x = np.load("points.npy") * SCALE
    y = x.argmax(axis=1)
    return x, y, x, y
"""
SCENARIO = """
model = "mlp"
phases = [{ name = "training", rounds = 1, cohort = 2 }]
[data]
name = "my_data:made"
clients = 3
"""
GRID = """
scenario = "own.toml"
seeds = [0, 1]
rows = { plain = {}, slow = { phases.training.local.lr = 0.001 } }
columns = { all = {} }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project, in the working directory."""
    write(tmp_path, "my_data.py", DATA)
    write(tmp_path, "my_helpers.py", "SCALE = 1\n")
    (tmp_path / "own.toml").write_text(SCENARIO)
    (tmp_path / "own.grid.toml").write_text(GRID)
    points(tmp_path, 0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one") / "runs"


@pytest.fixture
def finished(one_run: Path, folder: Path) -> Path:
    """The project with a finished run of the first row and seed."""
    if not one_run.exists():
        assert run("--only", "plain/all", "--seed", "0") == 0
        shutil.copytree(folder / "runs", one_run)
    shutil.copytree(one_run, folder / "runs", dirs_exist_ok=True)
    return folder


def write(folder: Path, module: str, text: str) -> None:
    """Writes a module and drops its cached import, as another command would see it."""
    (folder / module).write_text(text)
    for name in ("my_data", "my_helpers"):
        sys.modules.pop(name, None)
    for compiled in (folder / "__pycache__").glob("*"):
        compiled.unlink()


def points(folder: Path, seed: int) -> None:
    np.save(folder / "points.npy", np.random.default_rng(seed).normal(size=(12, 2)).astype(np.float32))


def run(*arguments: str) -> int:
    return main(["own.grid.toml", "--backend", "inline", *arguments])


def test_a_changed_module_is_rejected_by_name_and_taken_again_once_it_is_restored(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(finished, "my_helpers.py", "SCALE = -1\n")
    capsys.readouterr()
    assert run() == 1
    kept = finished / "runs" / "own" / "plain" / "all" / "seed_0"
    assert capsys.readouterr().err == (
        f"error: plain / all / seed 0: '{kept}' has a run from before your code was changed: 'my_helpers'; undo the "
        "change, choose another folder with --out, or remove that one to run it again\n"
    )
    write(finished, "my_helpers.py", "SCALE = 1\n")
    assert run("--only", "plain/all", "--seed", "0") == 0


def test_a_module_that_is_imported_since_is_named_as_such(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(finished, "my_helpers.py", "from my_other import SCALE\n")
    write(finished, "my_other.py", "SCALE = 1\n")
    assert run() == 1
    assert "'my_helpers', 'my_other' (not used before); undo the change" in capsys.readouterr().err


def test_changed_data_is_rejected_before_anything_is_run_whatever_the_seeds(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points(finished, 1)
    capsys.readouterr()
    assert run("--seed", "1") == 1
    said = capsys.readouterr().err
    assert said.startswith("error: plain / all / seed 0: '")
    assert "has a run from before the data 'my_data:made' was changed (sha256 " in said
    assert not list(finished.rglob("seed_1"))
    points(finished, 0)
    assert run("--only", "plain/all", "--seed", "1") == 0


def test_data_that_changes_while_a_grid_runs_ends_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rayfl.studies.grid import cell_runs as running

    run_cell = running.run_cell

    def meanwhile(cell: Cell, data_dir: Path, _: object) -> str | None:
        error = run_cell(cell, data_dir)  # loads the data itself, as every process of a cluster does
        points(folder, 1)
        return error

    monkeypatch.setattr(running, "run_cell", meanwhile)
    assert run("--seed", "0") == 1
    assert "error: two runs used different data: " in capsys.readouterr().err


def test_cells_with_equal_data_load_it_once_and_that_of_their_start_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def counted(data: Data, *arguments: Any) -> ShardStore:
        loaded.append(data.name)
        return build_store(data, *arguments)

    monkeypatch.setattr("rayfl.runs.preparation.build_store", counted)
    (folder / "first.toml").write_text(SCENARIO)
    (folder / "own.toml").write_text(
        SCENARIO.replace("my_data:made", "tests.user_code:vectors") + '[start]\nscenario = "first.toml"\n'
    )
    both = ["my_data:made", "tests.user_code:vectors"]
    assert run("--seed", "0") == 0
    assert sorted(loaded) == both
    loaded.clear()
    monkeypatch.delattr("rayfl.runs.preparation.load")  # the data of finished runs is that of those to come
    shutil.rmtree(folder / "runs" / "own" / "slow")
    assert run("--seed", "0") == 0
    assert sorted(loaded) == both


def test_code_and_data_of_the_scenario_that_cells_start_from_count_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "first.toml").write_text(SCENARIO)
    (folder / "own.toml").write_text(
        SCENARIO.replace("my_data:made", "tests.user_code:vectors") + '[start]\nscenario = "first.toml"\n'
    )
    assert run("--only", "plain/all", "--seed", "0") == 0
    write(folder, "my_helpers.py", "SCALE = 1  # the same\n")
    assert run() == 1
    assert "your code was changed: 'my_helpers'" in capsys.readouterr().err
    write(folder, "my_helpers.py", "SCALE = 1\n")
    points(folder, 1)
    assert run() == 1
    assert "the data 'my_data:made' was changed" in capsys.readouterr().err


def test_a_run_of_an_earlier_format_ends_the_grid_with_one_line(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = finished / "runs" / "own" / "plain" / "all" / "seed_0"
    facts = json.loads((folder / "environment.json").read_text())
    del facts["place"]
    (folder / "environment.json").write_text(json.dumps(facts))
    capsys.readouterr()
    assert run("--only", "plain/all") == 1
    assert capsys.readouterr().err == (
        f"error: '{folder}': rayfl {__version__} wrote these records in an earlier format, which this rayfl "
        f"{__version__} does not read: use that one, or run the scenario again\n"
    )


def test_every_run_records_the_digests_of_the_users_modules_and_of_arrays(finished: Path) -> None:
    facts = json.loads(next(finished.rglob("environment.json")).read_text())
    assert list(facts["code"]) == ["my_data", "my_helpers", "numpy"]
    assert facts["code"]["numpy"] == f"numpy {np.__version__}"
    assert {len(facts["code"]["my_data"]), len(facts["data"]["digest"])} == {64}
    assert os.fspath(finished) not in json.dumps(facts["code"])


@pytest.mark.parametrize(
    ("kind", "behind"), [("file", False), ("run", True)], ids=["its own start", "the start of its start"]
)
def test_a_cell_that_began_with_other_weights_is_rejected(
    kind: str, behind: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rayfl.runs.session import run as run_scenario

    weights = run_scenario("own.toml", backend="inline", folder=folder / "before").directory / "model.safetensors"
    start = f'[start]\n{kind} = "{weights if kind == "file" else weights.parent}"\n'
    (folder / "first.toml").write_text(SCENARIO + start)
    (folder / "own.toml").write_text(SCENARIO + ('[start]\nscenario = "first.toml"\n' if behind else start))
    assert run("--only", "plain/all", "--seed", "0") == 0
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    capsys.readouterr()
    assert run("--only", "plain/all") == 1
    kept = folder / "runs" / "own" / "plain" / "all" / "seed_0"
    assert capsys.readouterr().err == (
        f"error: plain / all / seed 0: '{kept}' has a run from before the weights that it starts from were changed; "
        "restore them, choose another folder with --out, or remove that one to run it again\n"
    )
    weights.write_bytes(before)
    assert run("--only", "plain/all", "--seed", "0") == 0


def test_cells_of_another_version_of_rayfl_are_named(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["own.grid.toml", "--table-only"]) == 0
    assert "warning" not in capsys.readouterr().out
    for path in finished.rglob("environment.json"):
        environment = json.loads(path.read_text())
        environment["packages"]["rayfl"] = "0.0.1"
        path.write_text(json.dumps(environment))
    assert main(["own.grid.toml", "--table-only"]) == 0
    said = f"warning: finished runs used rayfl 0.0.1, and this is {rayfl.__version__}, whose results may differ; "
    assert said in capsys.readouterr().out
