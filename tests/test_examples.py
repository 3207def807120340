"""The examples run as a user runs them, and do what they say."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console
from safetensors.numpy import load_file

import rayfl
from rayfl.algorithms import Updates
from rayfl.config.loader import load_scenario
from rayfl.errors import ScenarioError
from rayfl.runs.preparation import prepare
from tests.algorithms.reference import fedavg
from tests.algorithms.scene import PLAIN, trained
from tests.engine.scenes import run_on_hosts

EXAMPLES = Path(__file__).parent.parent / "examples"
DATA = Path("no-data-here")
FEW: dict[str, Any] = {"phases.0.rounds": 2, "phases.0.local.epochs": 1}
"""Enough to tell bits apart."""


def ran(example: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script, in an empty working directory: what it names it must find beside itself."""
    folder.mkdir(exist_ok=True)
    return python_in(folder, [Path(rayfl.__file__).parent.parent], str(EXAMPLES / f"{example}.py"), *arguments)


def python_in(folder: Path, importable: list[Path], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a working directory, with warnings as errors."""
    python_path = os.pathsep.join([*map(str, importable), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def records(folder: Path) -> Path:
    (found,) = (folder / "runs").iterdir()
    return found


def last_row(folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((records(folder) / "metrics.jsonl").read_text().splitlines()[-1])
    return row


@pytest.mark.slow
def test_own_network_and_data_learns_the_spirals(tmp_path: Path) -> None:
    done = ran("own_network_and_data", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    accuracy = last_row(tmp_path)["test_accuracy"]
    assert accuracy > 0.9
    assert f"the trained network in plain PyTorch: {accuracy:.1%} correct" in done.stdout


@pytest.mark.slow
def test_own_algorithm_learns_the_spirals(tmp_path: Path) -> None:
    done = ran("own_algorithm", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert last_row(tmp_path)["test_accuracy"] > 0.9


@pytest.mark.slow
def test_own_callback_ends_the_run_when_its_budget_is_spent(tmp_path: Path) -> None:
    done = ran("own_callback", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    parameters, cohort, bytes_each = 1251, 10, 4
    a_round = 2 * cohort * parameters * bytes_each  # down and up
    status = json.loads((records(tmp_path) / "status.json").read_text())
    last = math.ceil(2.5e6 / a_round)
    assert status["stopped"]["round"] == status["model"]["round"] == last
    assert f"stopped after round {last} by own_callback:TrafficBudget: 2.50 of 2.5 MB are spent" in done.stdout
    assert last_row(tmp_path)["megabytes_per_round"] == pytest.approx(a_round / 1e6)
    assert (records(tmp_path) / "best.safetensors").is_file()


@pytest.mark.slow
def test_own_sampler_learns_the_spirals(tmp_path: Path) -> None:
    done = ran("own_sampler", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert last_row(tmp_path)["test_accuracy"] > 0.9


def rayfl_on(command: str, example: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of rayfl's on an example's scenario, as its docstring says: its module is found beside it."""
    scenario = str(EXAMPLES / f"{example}.toml")
    return python_in(folder, [EXAMPLES.parent], "-m", "rayfl", command, scenario, *arguments)


@pytest.mark.slow
def test_your_own_problem_takes_less_than_sixty_lines(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="rayfl[tensorboard] is not installed")
    assert sum(len((EXAMPLES / f"own_problem.{kind}").read_text().splitlines()) for kind in ("toml", "py")) < 60
    done = rayfl_on("run", "own_problem", tmp_path, "--backend", "inline")
    assert (done.returncode, done.stderr) == (0, "")
    assert "by early_stopping: validation_macro_f1 has not improved in 5 evaluations" in done.stdout
    row = last_row(tmp_path)
    assert row["test_macro_f1"] > 0.7
    assert 0.3 < row["test_exact_match"] < row["test_macro_f1"]
    assert any((records(tmp_path) / "tensorboard").iterdir())


@pytest.mark.slow
def test_own_source_learns_the_seasons_and_has_its_further_test_set(tmp_path: Path) -> None:
    done = rayfl_on("run", "own_source", tmp_path, "--backend", "inline")
    assert (done.returncode, done.stderr) == (0, "")
    assert last_row(tmp_path)["test_accuracy"] > 0.8
    assert "for validation by client, 200 in noisy" in done.stdout


@pytest.mark.slow
def test_own_torch_dataset_learns_the_shapes_and_names_the_sites(tmp_path: Path) -> None:
    done = ran("own_torch_dataset", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert last_row(tmp_path)["test_accuracy"] > 0.8
    scores = pq.read_table(records(tmp_path) / "clients.parquet")
    assert set(scores["owner"].to_pylist()) == {f"site_{site}" for site in range(6)}


@pytest.mark.ray
@pytest.mark.slow
def test_a_dataset_that_hosts_open_gives_the_same_bits_on_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ["phases.0.rounds=2", "data.options.number=120"]
    done = ran("own_torch_dataset", tmp_path / "ray", "ray", *few, "resources.hosts=2")
    assert done.returncode == 0, done.stderr
    monkeypatch.syspath_prepend(EXAMPLES)
    scenario = importlib.import_module("own_torch_dataset").SCENARIO
    inline = rayfl.run(scenario, overrides=few, backend="inline", out=tmp_path / "inline", console=Console(quiet=True))
    on_ray, expected = (
        load_file(folder / "model.safetensors") for folder in (records(tmp_path / "ray"), inline.directory)
    )
    assert all((on_ray[name] == expected[name]).all() for name in expected)


@pytest.mark.slow
def test_own_partitioner_gives_every_client_less_than_the_one_before(tmp_path: Path) -> None:
    done = rayfl_on("data", "own_partitioner", tmp_path, "--clients", "--out", "split.png")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines() if line[:1].isdigit()]
    sizes = [int(row[1].replace(",", "")) for row in rows]
    assert len(sizes) == 10
    assert all(abs(later / earlier - 0.7) < 0.1 for earlier, later in pairwise(sizes))
    assert (tmp_path / "split.png").is_file()


@pytest.mark.slow
def test_own_augmentation_runs_beside_torchvisions_and_makes_a_difference(tmp_path: Path) -> None:
    losses = []
    for name, augment in (("with", ()), ("without", ("data.augment=[]",))):
        (tmp_path / name).mkdir()
        done = rayfl_on("run", "own_augmentation", tmp_path / name, "--backend", "inline", *augment)
        assert (done.returncode, done.stderr) == (0, "")
        losses.append(last_row(tmp_path / name)["train_loss"])
    assert losses[0] != losses[1]


@pytest.mark.slow
def test_own_schedule_learns_the_spirals_with_the_same_bits_on_any_number_of_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = rayfl_on("run", "own_schedule", tmp_path, "--backend", "inline", "phases.0.rings=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert last_row(tmp_path)["test_accuracy"] > 0.7
    assert "rings: 10 rounds, own_schedule:Rings, fedavg" in done.stdout
    scenario = tomllib.loads((records(tmp_path) / "scenario.toml").read_text())
    assert scenario["phases"][0]["rings"] == 2
    monkeypatch.syspath_prepend(EXAMPLES)
    keeping: dict[str, Any] = {
        "phases.0.algorithm": "moon",
        "model": {"name": "mlp", "hidden": [16]},
    }  # a model each, at home
    for changes in (FEW, FEW | keeping):
        job, _ = prepare(load_scenario(EXAMPLES / "own_schedule.toml", changes), DATA)
        models = [run_on_hosts(job, hosts)[0] for hosts in (1, 2, 3)]
        assert all(np.array_equal(models[0], model) for model in models[1:])


def test_one_ring_is_a_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    relay = {key: value for key, value in FEW.items() if "rings" not in key} | {"phases.0.schedule": "relay"}
    tables = tomllib.loads((EXAMPLES / "own_schedule.toml").read_text())
    del tables["phases"][0]["rings"]
    ring, _ = prepare(load_scenario(tables, FEW | {"phases.0.rings": 1}), DATA)
    assert np.array_equal(run_on_hosts(ring, 2)[0], run_on_hosts(prepare(load_scenario(tables, relay), DATA)[0], 1)[0])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"phases.0.cohort": 2},
            r"phases.rings.cohort: 3 rings need a client each, but a round may have only 2; draw more",
        ),
        ({"phases.0.rings": 0}, r"phases.rings.rings: must be greater than 0 \(got 0\)"),
        ({"phases.0.ring": 4}, r"phases.rings.ring: unknown key; did you mean 'rings'"),
        ({"phases.0.report": ["step"]}, r"phases.rings.report: has no effect with this schedule"),
        ({"phases.0.algorithm": "scaffold"}, r"phases.rings: 'scaffold' cannot run in a ring: its control variates"),
        ({"phases.0.schedule": "own_schedule:Ring"}, r"schedule: module 'own_schedule' has no 'Ring'; did you mean"),
        (
            {"phases.0.schedule": "own_schedule:RingsPhase"},
            r"schedule: 'own_schedule:RingsPhase' does not declare its keys",
        ),
    ],
)
def test_own_schedule_refuses_what_it_cannot_run(
    changes: dict[str, Any], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    with pytest.raises(ScenarioError, match=complaint):
        prepare(load_scenario(EXAMPLES / "own_schedule.toml", changes), DATA)


FEDERATED = "phases.federated.algorithm"


def test_lion_steps_by_the_sign_of_its_momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    lion = {"name": "own_server_optimizer:Lion", "lr": 0.125}
    once = replace(PLAIN, rounds=1)
    moved = trained({"name": "fedavg", "server_optimizer": lion}, once) - once.initial().float()
    assert torch.allclose(moved, 0.125 * torch.sign(fedavg(once) - once.initial()), rtol=0, atol=1e-6)


def test_the_longest_update_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    own = importlib.import_module("own_aggregation").WithoutTheLongest(leave_out=2)
    vectors = [np.full(2, length, np.float32) for length in (1, 9, 2, 8)]
    assert own.combine(Updates((0, 1, 2, 3), np.ones(4), vectors)).tolist() == [1.5, 1.5]


def test_an_aggregation_that_leaves_no_client_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    own = [f"{FEDERATED}.weighting=uniform", f"{FEDERATED}.aggregation=own_aggregation:WithoutTheLongest"]
    few = ["data.source=generated", "data.clients=12", "phases.federated.cohort=1"]
    with pytest.raises(ScenarioError, match=r"aggregation: leaving out 1 of 1 clients leaves none; lower leave_out"):
        prepare(load_scenario("femnist_fedavg", [*few, *own], quick=True), DATA)


def test_the_focal_loss_without_focus_is_cross_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    focal = importlib.import_module("own_task").Focal
    logits, labels = torch.randn(7, 5), torch.arange(7) % 5
    for reduction in ("none", "sum", "mean"):
        expected = torch.nn.functional.cross_entropy(logits, labels, reduction=reduction)
        assert torch.allclose(focal(gamma=0.0).loss(logits, labels, reduction), expected)
    right = logits.softmax(dim=1)[range(7), labels]
    assert torch.allclose(focal(gamma=2.0).loss(logits, labels, "none"), -((1 - right) ** 2) * right.log())


@pytest.mark.slow
def test_fedproto_serves_clients_of_few_classes(tmp_path: Path) -> None:
    done = rayfl_on("run", "fedproto", tmp_path, "--backend", "inline")
    assert (done.returncode, done.stderr) == (0, "")
    assert last_row(tmp_path)["test_accuracy"] > 0.45


@pytest.mark.slow
def test_fedrep_gives_clients_of_few_classes_what_one_model_cannot(tmp_path: Path) -> None:
    means = []
    for name, other in (("fedrep", ()), ("fedavg", ("phases.0.algorithm=fedavg", "evaluation.client_model=global"))):
        (tmp_path / name).mkdir()
        done = rayfl_on("run", "fedrep", tmp_path / name, "--backend", "inline", *other)
        assert (done.returncode, done.stderr) == (0, "")
        means.append(last_row(tmp_path / name)["test_accuracy"])
    assert means[0] > 0.5 > 0.2 > means[1]


def test_fedsam_takes_ten_lines() -> None:
    lines = (EXAMPLES / "fedsam.py").read_text().splitlines()
    assert len(lines[lines.index("class FedSAM(FedAvg):") :]) <= 10


@pytest.mark.slow
def test_fedsam_runs(tmp_path: Path) -> None:
    few = ("--quick", "data.source=generated", "data.clients=5", "phases.federated.until=2", "evaluation.every=1")
    done = rayfl_on("run", "fedsam", tmp_path, "--backend", "inline", *few)
    assert (done.returncode, done.stderr) == (0, "")
    assert last_row(tmp_path)["train_loss"] > 0


@pytest.mark.slow
def test_self_supervised_hands_its_encoder_to_the_supervised_phase(tmp_path: Path) -> None:
    few = ("phases.0.rounds=1", "phases.1.rounds=2", "data.clients=6", "phases.0.cohort=3", "phases.1.cohort=3")
    done = rayfl_on("run", "self_supervised", tmp_path, "--backend", "inline", *few)
    assert (done.returncode, done.stderr) == (0, "")
    assert "from the previous phase: 4 tensors taken, 2 fresh ('head.bias', 'head.weight'), 6 not used (" in done.stdout
    row = last_row(tmp_path)
    assert row["phase"] == "finetune"
    assert row["test_accuracy"] > 0


@pytest.mark.ray
@pytest.mark.slow
def test_tune_search_finds_a_learning_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="rayfl[tune] is not installed")
    tmp_path.joinpath("here").mkdir()
    monkeypatch.setenv("RAY_ADDRESS", "local")  # other tests have clusters on this machine
    done = python_in(tmp_path / "here", [EXAMPLES.parent], "-W", "ignore", str(EXAMPLES / "tune_search.py"))
    assert done.returncode == 0, done.stderr
    assert "best: {'phases.federated.local.lr': 0.1}" in done.stdout
    assert len(list((tmp_path / "here" / "runs").glob("femnist_fedavg-*"))) == 3


@pytest.mark.ray
@pytest.mark.slow
def test_an_example_gives_the_same_bits_on_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts are other processes: they too find the modules beside the script."""
    two_rounds = "phases.0.rounds=2"
    done = ran("own_algorithm", tmp_path / "ray", "ray", two_rounds, "resources.hosts=1")
    assert done.returncode == 0, done.stderr
    on_ray = load_file(records(tmp_path / "ray") / "model.safetensors")
    monkeypatch.syspath_prepend(EXAMPLES)
    scenario = importlib.import_module("own_algorithm").SCENARIO
    inline = rayfl.run(
        scenario, overrides=[two_rounds], backend="inline", out=tmp_path / "inline", console=Console(quiet=True)
    )
    expected = load_file(inline.directory / "model.safetensors")
    assert on_ray.keys() == expected.keys()
    assert all((on_ray[name] == expected[name]).all() for name in expected)


def test_lora_sends_only_its_adapters(tmp_path: Path) -> None:
    done = ran("lora", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trains 4,228 of 36,612 parameters, and 4,228 values travel" in done.stdout
    row, state = last_row(tmp_path), load_file(records(tmp_path) / "model.safetensors")
    assert row["bytes"] == 2 * 5 * 4 * 4 * 4228
    assert sum(value.size for value in state.values()) == 36_612
