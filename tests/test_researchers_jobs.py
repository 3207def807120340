"""What researchers come with, from first line to last, with what README and examples tell them.

Jobs that have tests of their own: FedSAM, FedRep, FedProto, macro-F1 with early stopping and TensorBoard on multi-label
pictures (test_examples.py), submitted runs (cluster/test_submission.py) and Ray Tune (cluster/test_ray_tune.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import rayfl
from rayfl.errors import ScenarioError

QUIET = Console(quiet=True)
LOCAL = {"lr": 0.1, "batch_size": 16, "epochs": 2}
FEDERATED: dict[str, Any] = {"name": "federated", "rounds": 8, "cohort": 6, "local": LOCAL}
FLOWERS: dict[str, Any] = {
    "data": {"name": "tests.researcher:flowers"},
    "model": {"name": "mlp", "hidden": [16]},
    "phases": [FEDERATED],
    "evaluation": {"every": 2},
}
"""Twelve gardens; FedAvg reaches about 90 percent."""


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def runs(scenario: dict[str, Any], **options: Any) -> rayfl.Result:
        return rayfl.run(scenario, backend="inline", out=tmp_path / "runs", console=QUIET, **options)

    return runs


def last(result: rayfl.Result) -> dict[str, Any]:
    row: dict[str, Any] = result.metrics.to_pylist()[-1]
    return row


def test_own_arrays(run: Any) -> None:
    result = run(FLOWERS)
    assert last(result)["test_accuracy"] > 0.8
    assert set(result.state_dict) == {"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"}


@pytest.mark.slow
def test_a_hugging_face_data_set_from_disk(run: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="rayfl[huggingface] is not installed")
    from tests.researcher import flowers

    parts = {}
    for name, (x, y, owner) in flowers().items():
        columns = {"measures": x.astype(np.float32).tolist(), "species": y, "garden": [f"garden {g}" for g in owner]}
        features = {"measures": datasets.Sequence(datasets.Value("float32"), length=4)}
        features |= {"species": datasets.ClassLabel(num_classes=3), "garden": datasets.Value("string")}
        parts[name] = datasets.Dataset.from_dict(columns, datasets.Features(features))
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "flowers")
    options = {"path": str(tmp_path / "flowers"), "owner": "garden"}
    result = run(FLOWERS | {"data": {"name": "huggingface", "options": options}})
    assert last(result)["test_accuracy"] > 0.8


@pytest.mark.slow
def test_a_network_of_torchvision_with_weights_from_a_file(run: Any, tmp_path: Path) -> None:
    from torchvision.models import shufflenet_v2_x0_5

    torch.manual_seed(1)
    published = shufflenet_v2_x0_5(num_classes=10)
    torch.save(torch.nn.DataParallel(published).state_dict(), tmp_path / "published.pth")
    scenario = {
        "data": {"name": "tests.researcher:pictures", "clients": 4, "partition": "iid"},
        "model": {"name": "torchvision.models:shufflenet_v2_x0_5", "num_classes": 3, "feature_layer": "fc"},
        "start": {"file": str(tmp_path / "published.pth"), "rename": {"module.": ""}, "head": "fresh"},
        "phases": [{"rounds": 1, "cohort": 2, "train": "head", "local": LOCAL | {"epochs": 1}}],
    }
    result = run(scenario)
    kept = [name for name in result.state_dict if not name.startswith("fc.") and "tracked" not in name]
    assert all(torch.equal(result.state_dict[name], published.state_dict()[name]) for name in kept)
    assert result.state_dict["fc.weight"].shape == (3, 1024)


def test_regression(run: Any) -> None:
    scenario = {
        "data": {"name": "tests.researcher:prices", "clients": 8, "partition": "iid"},
        "model": "tests.researcher:Regressor",
        "task": "regression",
        "phases": [FEDERATED],
    }
    assert last(run(scenario))["test_rmse"] < 0.15


@pytest.mark.slow
def test_text_whose_inputs_have_names(run: Any) -> None:
    scenario = {
        "data": {"name": "tests.researcher:reviews", "clients": 10, "partition": {"name": "dirichlet", "beta": 1.0}},
        "model": "tests.researcher:Reader",
        "phases": [{**FEDERATED, "rounds": 15, "cohort": 0.5, "local": LOCAL | {"lr": 1.0, "epochs": 4}}],
        "evaluation": {"every": 5, "metrics": ["accuracy", "macro_f1"]},
    }
    row = last(run(scenario))
    assert row["test_accuracy"] > 0.8
    assert row["test_macro_f1"] > 0.7


@pytest.mark.slow
def test_a_grid_interrupted_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tomli_w

    (tmp_path / "flowers.toml").write_text(tomli_w.dumps(FLOWERS))
    table = {
        "name": "comparison",
        "scenario": str(tmp_path / "flowers.toml"),
        "seeds": [0, 1],
        "rows": {"FedAvg": {}, "SCAFFOLD": {"phases.federated.algorithm": "scaffold"}},
        "columns": {"flowers": {}},
    }
    ran: list[str] = []
    from rayfl.studies.grid.cell_runs import run_cell

    def interrupted(cell: Any, data_dir: Path, *_: object) -> str | None:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(str(cell))
        return run_cell(cell, data_dir)

    monkeypatch.setattr("rayfl.studies.grid.cell_runs.run_cell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rayfl.grid(table, backend="inline", out=tmp_path / "runs", console=QUIET)
    monkeypatch.setattr("rayfl.studies.grid.cell_runs.run_cell", run_cell)
    markers = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("model.safetensors")}
    assert len(markers) == 3
    result = rayfl.grid(table, backend="inline", out=tmp_path / "runs", console=QUIET)
    assert {path: path.stat().st_mtime_ns for path in markers} == markers
    assert result.table["row"].to_pylist() == ["FedAvg", "FedAvg", "SCAFFOLD", "SCAFFOLD"]
    assert min(result.table["best"].to_pylist()) > 80
    assert repr(result) == f"<GridResult comparison: 4 runs, in {tmp_path / 'runs' / 'comparison'}>"
    assert ">SCAFFOLD<" in result._repr_html_()
    with pytest.raises(ScenarioError, match="this grid has no seed 5"):
        rayfl.grid(table, backend="inline", out=tmp_path / "runs", console=QUIET, seeds=[5])


@pytest.mark.slow
def test_accuracy_of_clients_alone_and_of_one_machine_with_all_samples(run: Any) -> None:
    together, central = run(FLOWERS), run(FLOWERS, centralise=True)
    alone = run(FLOWERS, overrides={"phases.0.schedule": "local", "phases.0.cohort": 1.0})
    assert last(central)["test_accuracy"] > 0.8
    assert last(alone)["test_accuracy"] > 0.5
    assert last(alone)["bytes"] == 0 < last(together)["bytes"]
    assert alone.scenario.evaluation.client_model == "personal"


@pytest.mark.slow
def test_coprefl_on_own_data_as_a_start(run: Any) -> None:
    first = {**FEDERATED, "name": "pretraining", "algorithm": "coprefl", "rounds": 4}
    result = run(FLOWERS | {"phases": [first, FEDERATED]})
    phases = result.metrics["phase"].to_pylist()
    assert phases[0] == "pretraining"
    assert phases[-1] == "federated"
    assert last(result)["test_accuracy"] > 0.8


def test_own_optimizer_aggregation_and_sampler(run: Any) -> None:
    own = {
        "phases.0.local": {"optimizer": "tests.researcher:SignSGD", "lr": 0.01, "batch_size": 16, "epochs": 2},
        "phases.0.algorithm": {
            "name": "fedavg",
            "weighting": "uniform",
            "aggregation": "tests.researcher:WithoutTheLongest",
        },
        "phases.0.cohort": {"sampler": "tests.researcher:RoundRobin", "clients": 4},
    }
    assert last(run(FLOWERS, overrides=own))["test_accuracy"] > 0.8


@pytest.mark.slow
def test_a_thousand_clients(run: Any) -> None:
    many = {"data.options": {"number": 8000, "gardens": 1000}, "phases.0.cohort": 0.05, "phases.0.rounds": 10}
    result = run(FLOWERS, overrides=many)
    assert last(result)["test_accuracy"] > 0.7
    assert result.scenario.phases[0].cohort == 0.05
