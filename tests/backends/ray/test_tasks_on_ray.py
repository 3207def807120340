"""Tasks, metrics, sets, starts and central training once on Ray, with the bits of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import rayfl
from tests.engine import phase_tasks

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("shared_hosts")]

HERE = "tests.engine.test_tasks"
LOCAL = {"batch_size": 8, "lr": 0.1}
PHASES = [
    {"name": "relay", "schedule": "relay", "rounds": 2, "cohort": 3, "local": LOCAL},
    {"name": "central", "schedule": "central", "rounds": 2, "local": LOCAL},
    {"name": "parallel", "rounds": 2, "cohort": 4, "local": {**LOCAL, "optimizer": "adamw", "precision": "bf16"}},
]


def largest_error(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float((outputs - targets).abs().max())


SCENES: dict[str, dict[str, Any]] = {
    "vectors": {"metrics": ["rmse", "mae", {"name": f"{__name__}:largest_error", "higher_is_better": False}]},
    "tags": {"metrics": ["macro_f1", "auroc"], "headline": "auroc"},
    "maps": {"metrics": ["mean_iou"]},
    "verses": {"metrics": ["perplexity", "accuracy"]},
}
TASKS = {"vectors": "regression", "tags": "multilabel", "maps": "segmentation", "verses": "next_symbol"}
MODELS = {"vectors": "Dense", "tags": "Dense", "maps": "Pixels", "verses": "Speller"}


def rows_alike(scenario: dict[str, Any], out: Path) -> list[dict[str, Any]]:
    """The metrics of a scenario in one process; checks that Ray has the same ones, and the same model."""
    quietly: dict[str, Any] = {"out": out, "console": Console(quiet=True)}
    inline, on_ray = (rayfl.run(scenario, backend=backend, **quietly) for backend in ("inline", "ray"))
    assert all(torch.equal(inline.state_dict[key], on_ray.state_dict[key]) for key in inline.state_dict)
    rows: list[dict[str, Any]] = inline.metrics.drop_columns(["seconds"]).to_pylist()
    assert on_ray.metrics.drop_columns(["seconds"]).to_pylist() == rows
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_a_task_has_the_same_bits_and_metrics_on_ray(name: str, tmp_path: Path) -> None:
    scenario = {
        "name": name,
        "data": {
            "name": f"{HERE}:{name}",
            "clients": 8,
            "partition": "iid",
            "validation_share": 0.1,
            "test_share": 0.1,
        },
        "model": f"{HERE}:{MODELS[name]}",
        "task": TASKS[name],
        "phases": PHASES,
        "evaluation": SCENES[name] | {"batch_size": 16, "per_client": True},
        "resources": {"hosts": 2},
    }
    before = scenario | {"name": "first", "phases": PHASES[:1]}
    first = rayfl.run(before, backend="inline", out=tmp_path, console=Console(quiet=True))
    rows = rows_alike(scenario | {"start": {"run": str(first.directory)}}, tmp_path)
    assert any(column.startswith("client_test_") for column in rows[0])


@pytest.mark.slow
def test_self_supervision_followed_by_supervision_has_the_same_bits_on_ray(tmp_path: Path) -> None:
    rows = rows_alike(phase_tasks.tables(evaluation={"per_client": True}), tmp_path)
    assert [row["test_guessed"] is None for row in rows] == [False] * 3 + [True] * 2


FRACTALS = {"codes": 30, "pairs": 48, "test_images": 8, "size": 16, "points": 100, "form": "cached"}
WITHOUT_LABELS: dict[str, dict[str, Any]] = {
    "simsiam": {"model": {"name": "siamese", "width": 8, "predictor": 4}, "task": "simsiam"},
    "moco": {"model": {"name": "momentum_contrast", "width": 8}, "task": {"name": "moco", "queue": 16}},
    "orchestra": {
        "model": {"name": "orchestra", "width": 8, "clusters": 4},
        "task": {"name": "orchestra", "memory": 8},
        "algorithm": {"name": "orchestra", "local_clusters": 3},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_LABELS)
def test_self_supervision_on_fractals_has_the_same_bits_on_ray(name: str, tmp_path: Path) -> None:
    tables = WITHOUT_LABELS[name]
    local = {**LOCAL, "batch_size": 4, "epochs": 1, "drop_last": True}
    scenario = {
        "name": name,
        "data": {"name": "fractals", "clients": 4, "augment": ["flip"], "options": FRACTALS},
        "model": tables["model"] | {"network": "tests.views_scene:Encoder"},
        "task": tables["task"],
        "phases": [
            {"name": "p", "rounds": 2, "cohort": 4, "algorithm": tables.get("algorithm", "fedavg"), "local": local}
        ],
        "evaluation": {"every": 1},
        "resources": {"hosts": 2},
    }
    assert len(rows_alike(scenario, tmp_path)) >= 2
