"""The scenarios and grids that come with rayfl can run, and agree with their papers."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rayfl
from rayfl.config import load_scenario
from rayfl.config.cohort import Bernoulli
from rayfl.config.scenario import CHANGES_NO_RESULT, Scenario
from rayfl.config.scenario_files import find_grids, find_scenarios
from rayfl.config.section import Named
from rayfl.data.store import ShardStore, build_store
from rayfl.engine.plan.cohort import check_cohort
from rayfl.engine.plan.scenario_checks import check_scenario
from rayfl.runs.archive import GridPlace
from rayfl.runs.preparation import Prepared, prepare
from rayfl.runs.resolution import resolve
from rayfl.studies.grid.cell_checks import check_cells
from rayfl.studies.grid.cell_runs import planned
from rayfl.studies.grid.cells import Cell, cells_of
from rayfl.studies.grid.schema import Grid, Published, load_grid

pytestmark = pytest.mark.usefixtures("cache_of_its_own", "images_drawn_once")

SCENARIOS, GRIDS = find_scenarios(), find_grids()

PUBLISHED = {
    "coprefl_table_1_cifar100": 4 * 4,
    "coprefl_table_1_tiny_imagenet": 4 * 4,
    "coprefl_table_1b_cifar100": 4 * 5,
    "coprefl_table_1b_tiny_imagenet": 4 * 5,
    "coprefl_table_2": 2 * 5,
    "coprefl_table_3a": 2 * 6,
    "coprefl_table_3b": 2 * 5 * 2,
    "coprefl_table_4": 4 * 5,
    "coprefl_table_5": 2 * 2,
    "coprefl_table_6": 2 * 4,
    "cyclicfl_clients": 1,
    "cyclicfl_inputs": 2 * 4,
    "cyclicfl_steps": 1,
    "cyclicfl_switch_round": 4,
    "cyclicfl_table_1_cifar10": 3 * 5 * 3,
    "cyclicfl_table_1_cifar100": 3 * 5 * 6,
    "cyclicfl_table_1_fashion_mnist": 3 * 5 * 3,
    "cyclicfl_table_1_femnist": 3 * 5,
    "cyclicfl_table_1_shakespeare": 3 * 4,
    "cyclicfl_table_2": 3 * 4 * 2,
    "cyclicfl_table_2_fashion_mnist": 3 * (4 + 1),
    "fedbug_figure_3_cifar100": 2 * 4,
    "fedbug_figure_3_tiny_imagenet": 2 * 4,
    "fedbug_table_1": 4 * 20,
    "fedbug_table_2": 4 * 20,
    "fedbug_table_3": 4 * 20,
    "fedbug_table_4_cifar100": 3 * 8 - 4,  # the paper prints four of them twice
    "fedbug_table_4_tiny_imagenet": 3 * 8 - 4,
    "fedbug_table_5": 2 * 6,
    "fps_table_6_cifar": 9 + 6,
    "fps_table_6_resnet8": 4,
    "fps_table_6_tiny_imagenet": 6,
    "fps_table_7_cifar10": 6,
    "fps_table_7_tiny_imagenet": 6,
    "fps_chest_xray": 3,
    "fps_sent140": 2 * 2,
    "fps_shakespeare": 2 * 2,
    "fps_table_4_inaturalist": 3 * 3,
    "fps_table_5_cityscapes": 3 * 2,
}
"""Number of published figures for each grid."""


CLIENTS = "client_test_accuracy"
FILES_ALONE = ("image_folder", "imagenet")
"""Sources without generated substitutes: quick forms of their scenarios use other data."""


NEED_TEXT = ("sent140_fps", "fps_sent140")
"""They build a network of `transformers`."""

LARGE = ("resnet18", "resnet34", "deeplab_v3_plus")
"""Networks that take a second or more to build and to try; their own tests do it once."""

CALIBRATED = ("private_clients_arms", "private_clients_search")
"""Grids whose cells find the noise of an epsilon, for seconds; the accountant's own tests do it for small runs."""

SMALL_CROPS = ["data.augment=[{ name = 'crop', size = 64, padding = 0 }, 'flip']"]
"""For generated Cityscapes images, which are smaller than the paper's crops."""


def quick_set(names: Iterable[str], *chosen: str) -> list[Any]:
    """Parameters, all slow except the chosen ones: each generates data of full size."""
    lacks_text = pytest.mark.skipif(find_spec("transformers") is None, reason="rayfl[text] is not installed")
    marks = {name: [lacks_text] * (name in NEED_TEXT) + [pytest.mark.slow] * (name not in chosen) for name in names}
    return [pytest.param(name, marks=found) for name, found in marks.items()]


def on_stand_ins(name: str) -> list[str]:
    """Overrides that a scenario or grid needs on generated data."""
    return ["data.source=generated", *(SMALL_CROPS if name in ("cityscapes_fps", "fps_table_5_cityscapes") else [])]


def first_of(grid: Grid) -> Grid:
    """A grid with its first seed and task alone."""
    return grid.model_copy(update={"seeds": grid.seeds[:1], "tasks": grid.tasks and 1})


@cache
def scenarios_of(name: str, quick: bool) -> dict[GridPlace, Scenario]:
    """Of the cells of the first seed and task of a grid, on generated data, before defaults are filled in."""
    return first_of(load_grid(GRIDS[name])).scenarios(on_stand_ins(name), quick)


@cache
def cells(name: str, quick: bool = False) -> list[Cell]:
    """The cells of the first seed and task of a grid, on generated data."""
    return cells_of(first_of(load_grid(GRIDS[name])), Path(), on_stand_ins(name), quick)


def downloads(cell: Cell) -> bool:
    """Whether its first weights come from the internet."""
    return cell.scenario.start is not None and cell.scenario.start.weights is not None


def from_what_is_at_hand(cell: Cell) -> Cell:
    """The cell, without weights that it would download."""
    return replace(cell, scenario=cell.scenario.model_copy(update={"start": None})) if downloads(cell) else cell


def with_all_parts(names: Iterable[str], quick: bool = True) -> dict[str, list[Cell]]:
    """Few cells of these grids with every network on its data and task, and every phase, but for numbers.

    Large networks, and what cells start from, are left out.
    """
    parts = {
        (name, Cell(place, scenario.model_copy(update={"start": None}), Path(), Path())): parts_of(scenario)
        for name in names
        for place, scenario in scenarios_of(name, quick).items()
        if scenario.model.name not in LARGE
    }
    missing, found = set[str]().union(*parts.values()), defaultdict[str, list[Cell]](list)
    while missing:
        name, cell = max(parts, key=lambda each: len(parts[each] & missing))
        found[name].append(cell)
        missing -= parts[name, cell]
    return found


def parts_of(scenario: Scenario) -> set[str]:
    tables = scenario.model_dump(mode="json", exclude=set(CHANGES_NO_RESULT))
    return {str(shape(part)) for part in [*tables["phases"], [tables["data"]["name"], tables["model"], tables["task"]]]}


def shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return list({str(shape(each)): shape(each) for each in value}.values())
    return (
        re.sub(r"\d+", "number", value)
        if isinstance(value, str)
        else "number"
        if type(value) in (int, float)
        else value
    )


@pytest.mark.takes("prepares a scenario with all of its data")
@pytest.mark.parametrize("name", quick_set(SCENARIOS, "femnist_cyclic"))
def test_a_scenario_is_ready_to_run_in_full_and_quick(name: str) -> None:
    scenario = load_scenario(SCENARIOS[name], on_stand_ins(name))
    quick = load_scenario(SCENARIOS[name], on_stand_ins(name), quick=True)
    assert sum(phase.rounds for phase in quick.phases) < sum(phase.rounds for phase in scenario.phases)
    shown = quick if scenario.data.name in FILES_ALONE else scenario
    job, _ = prepare(shown, Path("nowhere"))
    assert job.result.store.num_clients == (shown.data.clients or job.result.store.num_clients)
    if quick.data.clients is not None:
        for phase in quick.phases:
            check_cohort(phase, name, quick.data.clients)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_resolved_scenario_can_be_run_again_and_is_the_same(name: str, quick: bool) -> None:
    written = resolve(load_scenario(SCENARIOS[name], quick=quick)).to_toml()
    again = resolve(load_scenario(tomllib.loads(written)))
    check_scenario(again)
    assert again.to_toml() == written


@pytest.mark.parametrize("name", quick_set(GRIDS))
def test_cells_of_a_grid_are_unlike_each_other_and_can_be_prepared(name: str) -> None:
    found = cells(name)
    assert len({cell.digest for cell in found}) == len(found)
    if name not in (*NEED_TEXT, *CALIBRATED):
        check_cells(with_all_parts([name], quick=False)[name], Prepared(Path("nowhere")))


@pytest.mark.parametrize("name", GRIDS)
def test_every_cell_of_a_grid_can_be_written_and_is_unlike_the_others(name: str) -> None:
    grid = load_grid(GRIDS[name])
    assert (grid.name, bool(grid.title)) == (name, True)
    rounds = []
    for quick in (False, True):
        found = scenarios_of(name, quick)
        assert len({str(scenario.model_dump(exclude={"title"})) for scenario in found.values()}) == len(found)
        rounds.append([sum(phase.rounds for phase in scenario.phases) for scenario in found.values()])
        for place, scenario in found.items():
            for phase in scenario.phases:
                check_cohort(phase, str(place), scenario.data.clients or 1)
    assert all(few <= all_of_them for all_of_them, few in zip(*rounds, strict=True))


@pytest.mark.parametrize("name", quick_set(GRIDS))
def test_every_cell_of_a_grid_has_a_quick_form_unlike_the_others(name: str) -> None:
    found = cells(name, quick=True)
    assert len({cell.digest for cell in found}) == len(found)
    work, full_work = planned(found), planned(in_full := cells(name))
    assert all(work[cell] < full_work[full] for cell, full in zip(found, in_full, strict=True))


@pytest.mark.takes("generates the data and builds the networks of 40 cells")
def test_cells_with_every_network_and_phase_can_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, ShardStore] = {}

    def once(*of: Any) -> ShardStore:
        if str(of) not in kept:
            while len(kept) > 1:
                del kept[next(iter(kept))]
            kept[str(of)] = build_store(*of)
        return kept[str(of)]

    monkeypatch.setattr("rayfl.runs.preparation.build_store", once)
    for found in with_all_parts(name for name in GRIDS if name not in (*NEED_TEXT, *CALIBRATED)).values():
        check_cells(found, Prepared(Path("nowhere")))


@pytest.mark.parametrize("name", quick_set(GRIDS))
def test_every_cell_of_a_grid_can_be_prepared_in_its_quick_form(name: str) -> None:
    check_cells(map(from_what_is_at_hand, cells(name, quick=True)), Prepared(Path("nowhere")))


@pytest.mark.parametrize("name", quick_set(GRIDS))
def test_a_grid_runs_in_its_quick_form(name: str, tmp_path: Path) -> None:
    found = [cell for cell in cells(name, quick=True) if not downloads(cell)]
    result = rayfl.grid(
        GRIDS[name],
        overrides=on_stand_ins(name),
        quick=True,
        only=list(dict.fromkeys(f"{cell.row}/{cell.column}" for cell in found)),
        seeds=[found[0].place.seed],
        tasks=[0] if load_grid(GRIDS[name]).tasks else [],
        backend="inline",
        out=tmp_path,
        data_dir=tmp_path,
        console=Console(quiet=True),
    )
    assert not result.failed
    assert not result.failed_analyses
    assert len(result.table) == len(found)


def test_grids_have_all_the_numbers_of_their_tables() -> None:
    assert {
        name: sum(len(row) for rows in load_grid(path).published.values() for row in rows.values())
        for name, path in GRIDS.items()
        if load_grid(path).published
    } == PUBLISHED


@pytest.mark.parametrize(
    ("name", "metric", "row", "column", "value"),
    [
        ("coprefl_table_1_cifar100", f"{CLIENTS}_variance", "q-FFL", "CIFAR-100", (88.92, 3.31)),
        ("coprefl_table_1_tiny_imagenet", f"{CLIENTS}_lowest_10", "CoPreFL", "Tiny-ImageNet", (76.77, 2.58)),
        ("coprefl_table_1b_cifar100", f"{CLIENTS}_mean", "CoPreFL-SGD", "CIFAR-100", (83.63, 3.00)),
        ("coprefl_table_1b_tiny_imagenet", f"{CLIENTS}_lowest_20", "FedAvg", "Tiny-ImageNet", (72.91, 3.49)),
        ("coprefl_table_2", f"{CLIENTS}_variance", "γ = 0", "Tiny-ImageNet", (24.70, 1.95)),
        ("coprefl_table_3a", f"{CLIENTS}_mean", "Random", "CIFAR-100", (75.32, 1.68)),
        ("coprefl_table_3b", f"{CLIENTS}_variance", "FedMeta", "q-FFL (q = 2)", (39.63, 3.17)),
        ("coprefl_table_4", f"{CLIENTS}_lowest_20", "Centralized", "CIFAR-100", (69.22, 3.01)),
        ("coprefl_table_5", f"{CLIENTS}_variance", "CoPreFL", "CIFAR-100", (30.79, 2.79)),
        ("coprefl_table_6", f"{CLIENTS}_mean", "q-FFL", "Sketch", (60.79, 3.15)),
        ("cyclicfl_table_1_cifar10", "best", "SCAFFOLD", "β = 1.0", 63.36),
        ("cyclicfl_table_1_cifar10", "mean_last_5", "FedProx", "β = 0.1", (49.00, 0.23)),
        ("cyclicfl_table_1_cifar100", "best", "Cyclic+FedAvg", "C, β = 0.1", 57.61),
        ("cyclicfl_table_1_cifar100", "mean_last_5", "Cyclic+FedAvg", "F, β = 1.0", (56.47, 0.31)),
        ("cyclicfl_table_1_cifar100", "best_round", "SCAFFOLD", "F, β = 0.1", 360),
        ("cyclicfl_table_1_fashion_mnist", "best_round", "MOON", "β = 0.1", 670),
        ("cyclicfl_table_1_fashion_mnist", "mean_last_5", "MOON", "β = 0.5", (83.94, 1.97)),
        ("cyclicfl_table_1_shakespeare", "best_round", "FedAvg", "Shakespeare", 48),
        ("cyclicfl_table_2", "best_round", "FedAvg", "without P1", 466),
        ("cyclicfl_table_1_fashion_mnist", "best", "MOON", "β = 0.5", 86.01),
        ("cyclicfl_table_1_femnist", "mean_last_5", "Cyclic+FedAvg", "FEMNIST", (82.95, 0.40)),
        ("cyclicfl_table_1_shakespeare", "best", "FedProx", "Shakespeare", 46.73),
        ("cyclicfl_switch_round", "best_round", "Cyclic+FedAvg", "100 rounds", 107),
        ("fedbug_figure_3_cifar100", "last", "20 %", "α = 0.3", 47.92),
        ("fedbug_figure_3_tiny_imagenet", "last", "12 %", "IID", 28.87),
        ("fedbug_table_1", "last", "1 %, IID, FedAvg", "Vanilla", 78.61),
        ("fedbug_table_1", "last", "10 %, α = 0.3, FedDyn", "FedBug (40 %)", 81.80),
        ("fedbug_table_2", "last", "1 %, α = 0.3, FedDecorr", "FedBug (20 %)", 44.75),
        ("fedbug_table_2", "last", "10 %, IID, FedExP", "FedBug (10 %)", 48.68),
        ("fedbug_table_3", "last", "10 %, IID, FedDyn", "FedBug (48 %)", 27.78),
        ("fedbug_table_3", "last", "30 %, α = 0.5, FedProx", "FedBug (24 %)", 26.02),
        ("fedbug_table_4_cifar100", "last", "IID, ResNet-34", "Block, 20 %", 53.42),
        ("fedbug_table_4_tiny_imagenet", "last", "α = 0.5, ResNet-18", "Module, 40 %", 32.86),
        ("fedbug_table_5", "last", "α = 0.3, 500 clients", "FedBug (50 %)", 19.56),
        ("fps_table_6_cifar", "last", "FPS + SimSiam", "CIFAR-10", (80.5, 0.25)),
        ("fps_table_6_tiny_imagenet", "last", "Fractal + SimSiam", "Tiny-ImageNet", (44.2, 0.20)),
        ("fps_table_7_cifar10", "last", "FPS + SP", "CIFAR-10", 82.2),
        ("fps_table_7_tiny_imagenet", "last", "Random + SP", "Tiny-ImageNet", 43.9),
        ("fps_chest_xray", "last", "FPS", "α = 0.3", 74.8),
        ("fps_sent140", "test_accuracy", "Federated", "Pre-trained", 83.4),
        ("fps_shakespeare", "test_accuracy", "Centralised", "Penn Treebank", 59.6),
        ("fps_table_4_inaturalist", "test_accuracy", "GEO-3K", "FPS", 17.7),
        ("fps_table_5_cityscapes", "test_mean_iou", "Federated", "ImageNet", 67.6),
    ],
)
def test_published_numbers_are_the_papers(name: str, metric: str, row: str, column: str, value: Published) -> None:
    assert load_grid(GRIDS[name]).published[metric][row][column] == value


def fedbug_partition(data: str, skew: str) -> Named:
    """The authors' code gives every client as many images of every class, on CIFAR-100 alone."""
    if skew != "IID":
        return Named.model_validate(
            {"name": "dirichlet_per_client", "alpha": float(skew.removeprefix("α = ")), "sigma": 0.0}
        )
    return Named.model_validate({"name": "iid", "per_class": data == "cifar100"})


@pytest.mark.parametrize(
    "name", ["fedbug_ablation_cifar100", "fedbug_figure_3_cifar100", "fedbug_table_4_cifar100", "fedbug_table_5"]
)
def test_fedbugs_other_tables_have_the_same_partitions(name: str) -> None:
    for cell in cells(name):
        (skew,) = re.findall(r"IID|α = 0.3", f"{cell.row}, {cell.column}")
        assert cell.scenario.data.partition == fedbug_partition(cell.scenario.data.name, skew)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("fedbug_ablation_cifar10", {"cifar10": 300}),
        ("fedbug_ablation_cifar100", {"cifar100": 500}),
        ("fedbug_ablation_tiny_imagenet", {"tiny_imagenet": 100}),
    ],
)
def test_fedbugs_ablation_unfreezes_over_a_fifth_of_an_update(name: str, data: dict[str, int]) -> None:
    found = cells(name)
    assert {cell.scenario.data.name: cell.scenario.phases[0].rounds for cell in found} == data
    for cell in found:
        unfreeze = cell.scenario.phases[0].local.unfreeze
        assert unfreeze is not None
        assert unfreeze.share == (0.2 if cell.row in ("FedBug", "top-down") else 0)


@pytest.mark.parametrize(("name", "table"), [("cifar100", "fedbug_table_2"), ("tiny_imagenet", "fedbug_table_3")])
def test_fedbugs_figure_3_repeats_the_tables_cells_and_goes_on_to_all_of_an_update(name: str, table: str) -> None:
    grid = f"fedbug_figure_3_{name}"
    shares = {int(cell.row.removesuffix(" %")) for cell in cells(grid)}
    assert {0, 100} < shares
    of_table = {(f"10 %, {cell.column}, FedAvg", cell.row): cell.scenario for cell in cells(grid)}
    same = [cell for cell in cells(table) if cell.row.startswith("10 %") and cell.row.endswith(", FedAvg")]
    published = load_grid(GRIDS[grid]).published["last"]
    assert len(same) == 2 * 4
    for cell in same:
        percent = re.sub(r"\D", "", cell.column) or "0"
        of_figure = of_table[cell.row, f"{percent} %"]
        assert resolve(of_figure).model_dump(exclude={"title"}) == resolve(cell.scenario).model_dump(exclude={"title"})
        skew = cell.row.split(", ")[1]
        assert published[f"{percent} %"][skew] == load_grid(GRIDS[table]).published["last"][cell.row][cell.column]


@pytest.mark.parametrize("name", [name for name in GRIDS if name.startswith("coprefl_table_")])
def test_coprefls_tables_take_a_meta_step_at_every_gamma(name: str) -> None:
    rows = [
        line for line in GRIDS[name].read_text(encoding="utf-8").splitlines() if "meta_lr" in line and "gamma" in line
    ]
    assert rows
    for row in rows:
        ((gamma, meta_lr),) = re.findall(r"gamma = ([\d.]+), meta_lr = ([\d.]+)", row)
        # coprefl_fair_search: gamma * meta_lr = 0.015, a tenth with the server's queries; meta_lr = 1 at gamma = 0
        product = 0.0015 if 'queries = "server"' in row else 0.0075
        assert float(meta_lr) >= (1.0 if float(gamma) == 0 else product / float(gamma))


@pytest.mark.parametrize("name", ["fedbug_table_1", "fedbug_table_2", "fedbug_table_3"])
def test_fedbug_cells_are_what_their_labels_say(name: str) -> None:
    for cell in cells(name):
        percent, skew, method = re.split(" %, |, ", cell.row)
        (phase,) = cell.scenario.phases
        assert phase.settings.cohort == Bernoulli(bernoulli=int(percent) / 100)
        assert cell.scenario.data.partition == fedbug_partition(cell.scenario.data.name, skew)
        options = phase.algorithm.options
        assert (phase.algorithm.name, options["buffers"]) == (method.lower(), "average")
        assert options.get("weighting", "uniform") == "uniform"  # FedDyn has no other
        paper = {"fedprox": ("mu", 1e-4), "feddyn": ("alpha", 0.01), "feddecorr": ("beta", 0.01)}
        for option, value in [paper[name] for name in paper if name == phase.algorithm.name]:
            assert {**options, **(options["penalties"] or [{}])[0]}[option] == value
        assert phase.local.unfreeze is not None
        assert round(100 * phase.local.unfreeze.share) == int(re.sub(r"\D", "", cell.column) or 0)


@pytest.mark.parametrize("name", [name for name in GRIDS if name.startswith("cyclicfl_table_1_")])
def test_cyclicfl_runs_have_as_many_rounds_with_pre_training_as_without(name: str) -> None:
    total = 50 if "shakespeare" in name else 1000
    for cell in cells(name):
        *before, last = cell.scenario.phases
        assert sum(phase.rounds for phase in cell.scenario.phases) == total
        assert [phase.schedule for phase in before] == (["relay"] if cell.row == "Cyclic+FedAvg" else [])
        assert last.algorithm.name == cell.row.removeprefix("Cyclic+").lower()
        partition = cell.scenario.data.partition
        if partition is not None:
            assert cell.column.endswith(f"β = {partition.options['beta']}")
        if name == "cyclicfl_table_1_cifar100":
            assert cell.scenario.data.options == {"labels": {"C": "coarse", "F": "fine"}[cell.column[0]]}


def test_cyclicfls_switch_comes_in_any_of_1000_rounds_each_evaluated() -> None:
    found = cells("cyclicfl_switch_round")
    for cell in found:
        *before, last = cell.scenario.phases
        assert sum(phase.rounds for phase in before) == int(cell.column.removesuffix(" rounds"))
        assert last.rounds + sum(phase.rounds for phase in before) == 1000
        assert cell.scenario.evaluation.every == 1
    assert {"0 rounds", "150 rounds", "950 rounds"} < {cell.column for cell in found}


@pytest.mark.parametrize("name", ["fps_figure_3_cifar10", "fps_figure_3_tiny_imagenet"])
def test_fps_trains_as_many_epochs_whatever_a_round_has(name: str) -> None:
    for cell in cells(name):
        (phase,) = cell.scenario.phases
        assert isinstance(phase.local.epochs, int)
        assert phase.rounds * phase.local.epochs == 500
        shares = [drop / phase.rounds for drop in phase.local.lr_drops]
        assert shares == pytest.approx([0.3, 0.6, 0.9], abs=0.025)  # of whole rounds


def test_self_pre_training_stands_between_a_start_and_federated_training() -> None:
    for cell in cells("fps_table_7_cifar10"):
        start = cell.scenario.start
        own, before = " + SP" in cell.row, cell.row.startswith("FPS")
        assert (start is not None) == (own or before)
        if start is not None:
            assert (start.scenario == "cifar10_sp") == own
            assert ("start" in start.overrides) == (own and before)
