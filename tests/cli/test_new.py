"""`rayfl new` writes a scenario and an algorithm that run without changes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from rich.console import Console

import rayfl
from rayfl.__main__ import main
from rayfl.algorithms import algorithms
from rayfl.cli.new import DATA, starter
from rayfl.config.loader import load_scenario
from rayfl.engine.plan.scenario_checks import check_scenario
from rayfl.errors import ScenarioError
from rayfl.runs.resolution import resolve


def test_the_files_of_new_run_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "starter_that_runs"]) == 0
    assert "  rayfl run starter_that_runs.toml --quick  " in capsys.readouterr().out
    few = ["data.clients=5", "phases.federated.rounds=2", "phases.federated.local.steps=2"]
    arguments = ["run", "starter_that_runs.toml", "--quick", "--backend", "inline", *few]
    assert main([*arguments, "--out", "own"]) == 0
    # with a step length of 1 the one line that differs from FedAvg differs no longer
    assert main([*arguments, "phases.federated.algorithm.server_lr=1.0", "--out", "one"]) == 0
    assert main([*arguments, "phases.federated.algorithm=fedavg", "--out", "fedavg"]) == 0
    (own,), (one,), (fedavg,) = (list((tmp_path / name).iterdir()) for name in ("own", "one", "fedavg"))
    assert (one / "model.safetensors").read_bytes() == (fedavg / "model.safetensors").read_bytes()
    assert (own / "model.safetensors").read_bytes() != (fedavg / "model.safetensors").read_bytes()


@pytest.mark.parametrize("data", DATA)
def test_a_starter_of_every_data_set_is_valid_and_explains_every_section(data: str) -> None:
    scenario, algorithm = starter("mine", data).values()
    loaded = load_scenario(tomllib.loads(scenario))
    assert (loaded.data.name, loaded.phases[0].algorithm.name) == (data, "mine:Mine")
    for section in (
        "data",
        "model",
        "start",
        "phases",
        "phases.local",
        "evaluation",
        "checkpoint",
        "resources",
        "quick",
    ):
        assert f"[{section}]" in scenario
    compile(algorithm, "mine.py", "exec")


def test_the_keys_in_comments_are_keys(tmp_path: Path) -> None:
    """Every key in a comment is valid at its place when it is enabled alone."""
    text = starter("mine", "cifar10")["mine.toml"]
    lines = text.splitlines()
    tried = 0
    for place, line in enumerate(lines):
        if not line.startswith("# ") or " = " not in line.partition("#")[2].partition("#")[0] or "[" in line[:4]:
            continue
        if any(word in line for word in ("device", "gpus_per_host", "file", "minutes", '"# key')):
            continue  # these belong together, or need a file
        load_scenario(tomllib.loads("\n".join([*lines[:place], line.removeprefix("# "), *lines[place + 1 :]])))
        tried += 1
    assert tried >= 8


def test_a_registered_algorithm_needs_no_file_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "experiments"
    assert main(["new", "baseline", "--algorithm", "fedprox", "--folder", str(folder)]) == 0
    assert [path.name for path in folder.iterdir()] == ["baseline.toml"]
    assert load_scenario(folder / "baseline.toml").phases[0].algorithm.name == "fedprox"


@pytest.mark.parametrize("existing", ["mine.toml", "mine.py"])
def test_nothing_is_overwritten(existing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / existing).write_text("precious")
    assert main(["new", "mine", "--folder", str(tmp_path)]) == 1
    assert f"{existing}' already exists; choose another name or --folder" in capsys.readouterr().err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(existing, "precious")]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["my-method"], "name: 'my-method' is not a valid name for your module"),
        (["class"], "name: 'class' is not a valid name"),
        (["random"], "name: Python already has a module 'random'; choose another name"),
        (["torch"], "name: Python already has a module 'torch'"),
        (["mine", "--algorithm", "fedprx"], "--algorithm: unknown algorithm 'fedprx'; did you mean 'fedprox'"),
    ],
)
def test_names_that_cannot_be(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *arguments, "--folder", str(tmp_path)]) == 1
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_title_keeps_the_capitals_of_the_name() -> None:
    assert 'title = "FedX mine"' in starter("FedX_mine", algorithm="fedavg")["FedX_mine.toml"]
    assert 'title = "My method"' in starter("my_method", algorithm="fedavg")["my_method.toml"]


@pytest.mark.parametrize("algorithm", list(algorithms))
def test_quick_fits_every_algorithm_that_the_starter_fits(algorithm: str) -> None:
    tables = tomllib.loads(starter("mine", algorithm=algorithm)["mine.toml"])

    def is_valid(quick: bool) -> bool:
        try:
            check_scenario(resolve(load_scenario(tables, quick=quick)))
        except ScenarioError:
            return False
        return True

    assert is_valid(quick=True) == is_valid(quick=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "chance"), [("femnist", 1 / 62), ("fashion_mnist", 0.1), ("cifar10", 0.1), ("cifar100", 0.01)]
)
def test_quick_learns(data: str, chance: float, tmp_path: Path) -> None:
    scenario = load_scenario(tomllib.loads(starter("mine", data, algorithm="fedavg")["mine.toml"]), quick=True)
    result = rayfl.run(scenario, backend="inline", out=tmp_path, console=Console(quiet=True))
    assert result.metrics.to_pylist()[-1]["test_accuracy"] > 1.5 * chance
