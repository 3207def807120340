"""FPS's scenarios: the changes of its rivals, the models of starts, and the quick forms of grids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import rayfl
from rayfl.config import load_scenario
from rayfl.config.scenario import Scenario
from rayfl.config.scenario_files import find_grids
from rayfl.runs.preparation import prepare
from rayfl.runs.resolution import resolve
from rayfl.runs.start_chain import starts_of
from rayfl.studies.grid.analyses import analyses_of, checked
from rayfl.studies.grid.cells import cells_of
from rayfl.studies.grid.schema import load_grid

GRIDS = [
    name for name, path in find_grids().items() if path.parent.name == "fps" and name.startswith(("fps_t", "fps_f"))
]
ANALYSED = [name for name in GRIDS if load_grid(name).analyses]
ENCODER = {"conv1.weight", "layer3.0.bn2.running_mean"}


def full(name: str) -> Scenario:
    return resolve(load_scenario(name))


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("task", ["simsiam", "moco"])
def test_rivals_of_fps_differ_in_their_images_alone(task: str, size: int) -> None:
    fps, fractal, stylegan = (full(f"{kind}_{task}_{size}") for kind in ("fps", "fractal", "stylegan"))
    assert fps.data.options["size"] == stylegan.data.options["size"] == size
    assert {key for key, value in fps.data.options.items() if fractal.data.options[key] != value} == {"views"}
    for rival in (fractal, stylegan):
        assert (rival.task, rival.model, rival.phases, rival.seed) == (fps.task, fps.model, fps.phases, fps.seed)
        same = {"name", "options"}
        assert rival.data.model_dump(exclude=same) == fps.data.model_dump(exclude=same)


@pytest.mark.parametrize(
    "name", [name if name == "fps_figure_5" else pytest.param(name, marks=pytest.mark.slow) for name in GRIDS]
)
def test_the_cells_of_a_quick_grid_start_from_quick_runs(name: str) -> None:
    grid = load_grid(name)
    cells = grid.model_copy(update={"seeds": grid.seeds[:1]}).scenarios(quick=True).values()
    scenarios = {link.key: link.scenario for cell in cells for link in starts_of(cell.start)}
    assert scenarios
    for scenario in scenarios.values():
        assert scenario.data.options.get("pairs", 0) <= 512
        assert all(phase.rounds <= 2 for phase in scenario.phases)


@pytest.mark.parametrize("name", ["fps_table_2", pytest.param("fps_table_3", marks=pytest.mark.slow)])
def test_the_gap_is_between_as_many_passes_at_the_same_rates(name: str) -> None:
    grid = load_grid(find_grids()[name])
    assert grid.reference == "Centralised"
    cells = {cell.row: cell.scenario.phases[0] for cell in cells_of(grid, Path("nowhere")) if cell.column == "Random"}
    federated, central = cells["Federated"], cells["Centralised"]
    assert central.schedule == "central"

    def rates(phase: Any) -> list[float]:
        """Returns the learning rate of every pass."""
        local = phase.local
        by_round = [
            local.lr * local.lr_drop ** sum(drop < round for drop in local.lr_drops)
            for round in range(1, phase.rounds + 1)
        ]
        return [rate for rate in by_round for _ in range(local.epochs)]

    assert len(rates(federated)) == 500
    assert rates(federated) == rates(central)
    other = {"epochs", "lr_drops"}
    assert federated.local.model_dump(exclude=other) == central.local.model_dump(exclude=other)


def test_clients_hold_out_the_papers_share_for_validation() -> None:
    for name in ("cifar10_fps", "cifar100_fps", "tiny_imagenet_fps", "cifar10_sp", "tiny_imagenet_sp"):
        assert full(name).data.validation_share == 0.02


def test_models_of_a_landscape_begin_with_the_same_weights_whatever_the_partition(images_drawn_once: None) -> None:
    """The common plane of FPS's Figure 9 compares where one initial model ends."""
    cells = cells_of(load_grid("fps_figure_9"), Path("nowhere"), {"data.source": "generated"}, quick=True)
    plans = {cell.column: prepare(cell.scenario, Path("nowhere"))[0] for cell in cells if cell.row == "Random"}
    assert set(plans) == {"IID", "α = 0.1", "α = 0.3", "α = 1.0"}
    assert len({plan.workloads[0].initial.vector.tobytes() for plan in plans.values()}) == 1
    assert len({tuple(plan.workloads[0].population.sizes) for plan in plans.values()}) == 4


@pytest.mark.parametrize(
    "name",
    [name if name.startswith("fps_figures") else pytest.param(name, marks=pytest.mark.slow) for name in ANALYSED],
)
@pytest.mark.parametrize("quick", [False, True])
def test_the_runs_of_a_grid_will_support_its_analyses(name: str, quick: bool) -> None:
    grid = load_grid(name)
    analyses = analyses_of(grid, cells_of(grid, Path("nowhere"), quick=quick), quick)
    assert checked(analyses, name, Console(quiet=True), changed=False) == analyses != []


@pytest.mark.slow
def test_a_chain_of_starts_hands_over_the_encoder_and_no_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of fractals, then Orchestra on the clients, then federated training with labels."""
    monkeypatch.setenv("RAYFL_CACHE", str(tmp_path / "cache"))
    generated = {"source": "generated", "clients": 4, "partition": "iid"}
    result = rayfl.run(
        "cifar10_fps",
        quick=True,
        backend="inline",
        out=tmp_path,
        starts=tmp_path / "starts",
        overrides={
            "model": "resnet8",
            **{f"data.{key}": value for key, value in generated.items()},
            "phases.federated.local.steps": 1,
            "evaluation.samples": 50,
            "start": {
                "scenario": "cifar10_sp",
                "head": "fresh",
                "quick": True,
                "overrides": {
                    "task.memory": 32,
                    "model.network": "resnet8",
                    "data": generated,
                    "phases.sp": {"algorithm.local_clusters": 8, "local.steps": 1},
                    "evaluation.samples": 50,
                    "start": {
                        "scenario": "fps_simsiam_32",
                        "head": "fresh",
                        "overrides": {
                            "model.network": "resnet8",
                            "data.options": {"codes": 10, "pairs": 64, "test_images": 16},
                            "phases.pretraining": {"rounds": 1, "local.batch_size": 32},
                        },
                    },
                },
            },
        },
    )
    assert result.metrics["test_accuracy"].to_pylist()[-1] is not None
    assert all(np.isfinite(tensor.numpy()).all() for tensor in result.state_dict.values())
    (before,) = (tmp_path / "starts").glob("cifar10_sp-*/")
    for folder, name, head in (
        (before, "fps_simsiam_32", "fc.projector.0.weight"),
        (result.directory, "cifar10_sp", "fc.weight"),
    ):
        start = json.loads((folder / "environment.json").read_text())["start"]
        assert start["name"] == name
        assert set(start["taken"]) >= ENCODER
        assert head in start["fresh"]
        assert not [name for name in start["taken"] if name.startswith("fc.")]
        assert all(name.startswith("fc.") for name in start["fresh"])
