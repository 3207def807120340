"""The wheel, installed where the checkout cannot be imported: the command line and the shipped scenarios work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import rayfl

CHECKOUT = Path(rayfl.__file__).parent.parent


def run(*command: object, folder: Path) -> str:
    """The output of a command that must succeed, in an environment that does not lead to the checkout."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "RAYFL", "VIRTUAL_ENV"))}
    clean |= {"OMP_NUM_THREADS": "1", "RAYFL_CACHE": str(folder), "RAYFL_DATA": str(folder)}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `python` and `rayfl` of a new environment: the wheel, and what it depends on from this one.

    A path in a .pth file leads to the dependencies, but not to what .pth files there add, such as the checkout.
    """
    environment = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(environment, symlinks=True)
    programs = environment / "bin"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", programs / "python")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=environment)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def test_the_wheel_holds_the_package_its_scenarios_and_examples_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"rayfl-{rayfl.__version__}-py3-none-any.whl"
    files = set(zipfile.ZipFile(wheel).namelist())
    assert {file.split("/")[0] for file in files} == {"rayfl", f"rayfl-{rayfl.__version__}.dist-info"}
    assert "rayfl/py.typed" in files
    shipped = {f"rayfl/{path.relative_to(CHECKOUT)}" for path in (*scenario_files(), *example_files())}
    assert {file for file in files if file.endswith(".toml") or file.startswith("rayfl/examples/")} == shipped


def scenario_files() -> list[Path]:
    return list((CHECKOUT / "scenarios").rglob("*.toml"))


def example_files() -> list[Path]:
    return [path for kind in ("py", "toml") for path in (CHECKOUT / "examples").glob(f"*.{kind}")]


@pytest.mark.slow
def test_the_installed_package_copies_its_examples_and_they_run(programs: Path, tmp_path: Path) -> None:
    said = run(programs / "rayfl", "examples", "mine", folder=tmp_path)
    assert "mine/fedsam.py  FedSAM: clients look for flat minima" in said
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {path.name for path in example_files()}
    few = ("phases.0.rounds=1", "phases.0.algorithm.head_epochs=1", "evaluation.every=1")
    run(programs / "rayfl", "run", "mine/fedrep.toml", "--backend", "inline", *few, folder=tmp_path)
    again = subprocess.run(
        [programs / "rayfl", "examples", "mine"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (again.returncode, again.stderr) == (
        1,
        "error: cannot copy the examples to 'mine': File exists; choose a new folder\n",
    )


def test_the_wheel_has_everything_that_readme_runs(wheel: Path) -> None:
    files = set(zipfile.ZipFile(wheel).namelist())
    for page in (CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")):
        told = set(re.findall(r"python -m (rayfl[\w.]*)", page.read_text(encoding="utf-8")))
        for module in told:
            path = module.replace(".", "/")
            assert {f"{path}.py", f"{path}/__main__.py"} & files, f"{page.name}: {module}"


@pytest.mark.slow
def test_the_installed_package_lists_its_scenarios(programs: Path, tmp_path: Path) -> None:
    place = run(programs / "python", "-c", "import rayfl; print(rayfl.__file__)", folder=tmp_path)
    assert Path(place.strip()).is_relative_to(programs.parent)
    assert run(programs / "rayfl", "--version", folder=tmp_path) == f"rayfl {rayfl.__version__}\n"
    listed = run(programs / "rayfl", "list", folder=tmp_path).split()
    assert {"femnist_cyclic", "cyclicfl_table_2"} <= set(listed)
    listed = run(programs / "python", "-m", "rayfl.scenario", "--list", folder=tmp_path).split()
    assert "femnist_cyclic" in listed


@pytest.mark.slow
def test_the_installed_package_runs_a_scenario(programs: Path, tmp_path: Path) -> None:
    smaller = ["phases.cyclic.rounds=1", "phases.federated.rounds=1", "data.source=generated", "data.clients=10"]
    run(programs / "rayfl", "run", "femnist_cyclic", "--quick", "--backend", "inline", *smaller, folder=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["packages"]["rayfl"] == rayfl.__version__
    assert (folder / "model.safetensors").is_file()
