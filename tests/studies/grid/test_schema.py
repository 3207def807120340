"""A grid file: its scenarios, and the errors for a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from rayfl.config import find_scenarios, load_scenario
from rayfl.config.scenario_files import find_grids
from rayfl.errors import ScenarioError
from rayfl.runs.archive import GridPlace
from rayfl.runs.start_chain import starts_of
from rayfl.studies.grid.place import folder_name
from rayfl.studies.grid.schema import Grid, load_grid

SCENARIO = """\
model = "lenet5"
data = { name = "femnist", clients = 10 }
[[phases]]
name = "cyclic"
schedule = "relay"
rounds = 2
cohort = 3
[[phases]]
name = "federated"
until = 6
cohort = 3
[quick]
phases.federated.until = 4
"""
GRID: dict[str, Any] = {
    "scenario": "shared",
    "seeds": [0, 4],
    "rows": {"FedAvg": {"phases": {"cyclic": {"rounds": 0}}}, "Cyclic + FedAvg": {}},
    "columns": {"β = 0.1": {"data.clients": 5}, "β = 1.0": {"data.clients": 6}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "shared.toml").write_text(SCENARIO)
    return tmp_path / "scenarios"


def test_a_grids_name_leads_nowhere_else(folder: Path) -> None:
    with pytest.raises(ScenarioError, match="name: must be usable as a folder's name: printable characters, no slash"):
        load_grid(GRID | {"name": "../grid"})


def write(folder: Path, name: str = "table", **changes: Any) -> Path:
    path = folder / f"{name}.grid.toml"
    path.write_text(tomli_w.dumps(GRID | changes))
    return path


def test_a_grid_is_every_row_with_every_column_and_seed(folder: Path) -> None:
    scenarios = load_grid(write(folder)).scenarios()
    assert list(scenarios) == [
        ("table", row, column, seed, None) for row in GRID["rows"] for column in GRID["columns"] for seed in (0, 4)
    ]
    cell = scenarios[GridPlace("table", "FedAvg", "β = 1.0", 4)]
    assert (cell.seed, cell.data.clients, cell.name) == (4, 6, "shared")
    assert {phase.name: phase.rounds for phase in cell.phases} == {"federated": 6}
    assert [phase.rounds for phase in scenarios[GridPlace("table", "Cyclic + FedAvg", "β = 0.1", 0)].phases] == [2, 4]


def test_the_command_line_comes_after_common_overrides_then_rows_and_columns_last(folder: Path) -> None:
    path = write(
        folder,
        overrides={"title": "common", "numerics": {"threads": 2}, "data": {"clients": 1}},
        rows={"a": {"title": "row", "data.clients": 2}},
        columns={"b": {"data.clients": 3}},
        seeds=[0],
    )
    (plain,) = load_grid(path).scenarios().values()
    assert (plain.title, plain.numerics.threads, plain.data.clients) == ("row", 2, 3)
    (told,) = load_grid(path).scenarios(["title=told", "numerics.threads=4", "data.clients=5"]).values()
    assert (told.title, told.numerics.threads, told.data.clients) == ("row", 4, 3)


def test_of_rounds_and_until_in_row_and_column_the_later_wins(folder: Path) -> None:
    path = write(
        folder,
        overrides={"phases.cyclic.rounds": 3},
        rows={"a": {"phases.cyclic.until": 1}},
        columns={"b": {"phases.cyclic.rounds": 4}},
        seeds=[0],
    )
    (cell,) = load_grid(path).scenarios().values()
    assert [phase.rounds for phase in cell.phases] == [4, 2]


def test_quick_shortens_every_cell(folder: Path) -> None:
    scenarios = load_grid(write(folder)).scenarios(quick=True)
    assert {sum(phase.rounds for phase in scenario.phases) for scenario in scenarios.values()} == {4}


def test_the_grids_own_quick_comes_after_all_else(folder: Path) -> None:
    quick = {"phases": {"federated": {"rounds": 1}}, "data.clients": 3}
    grid = load_grid(write(folder, quick=quick, columns={"b": {"data.clients": 5}}))
    hurried = grid.scenarios(["data.clients=4"], quick=True)
    assert [cell.data.clients for cell in hurried.values()] == [3, 3, 3, 3]
    assert {sum(phase.rounds for phase in cell.phases) for cell in hurried.values()} == {1, 3}
    assert {cell.data.clients for cell in grid.scenarios().values()} == {5}


def test_tasks_repeat_every_cell_on_other_data_and_the_same_for_all_rows(folder: Path) -> None:
    scenarios = load_grid(write(folder, tasks=3)).scenarios()
    assert list(scenarios) == [
        ("table", row, column, seed, task)
        for row in GRID["rows"]
        for column in GRID["columns"]
        for seed in (0, 4)
        for task in range(3)
    ]
    for place, scenario in scenarios.items():
        assert (scenario.seed, scenario.data.seed) == (place.seed, place.task)


def test_seeds_reach_the_scenario_that_a_cell_starts_from(folder: Path) -> None:
    start = {"scenario": "shared", "overrides": {"phases.cyclic.rounds": 1}}
    grid = load_grid(write(folder, rows={"random": {}, "started": {"start": start}}))
    for place, scenario in grid.scenarios().items():
        if place.row == "random":
            assert scenario.start is None
        else:
            assert scenario.start is not None
            assert scenario.start.overrides == {"phases.cyclic.rounds": 1, "seed": place.seed}
            assert not scenario.start.quick


def test_quick_and_overrides_of_starts_reach_rows_that_have_one_and_their_own_come_last(folder: Path) -> None:
    start = {"scenario": "shared", "overrides": {"phases.cyclic.rounds": 1}}
    grid = load_grid(write(folder, rows={"random": {}, "started": {"start": start}}, seeds=[0]))
    told = ["start.overrides.data.clients=3", "start.overrides.phases.cyclic.rounds=9"]
    scenarios = grid.scenarios(told, quick=True)
    assert scenarios[GridPlace("table", "random", "β = 0.1", 0)].start is None
    found = scenarios[GridPlace("table", "started", "β = 0.1", 0)].start
    assert found is not None
    assert found.overrides == {"data.clients": 3, "phases.cyclic.rounds": 1, "seed": 0}
    assert found.quick


def test_a_column_changes_the_starts_of_its_rows_and_keeps_what_the_row_says(folder: Path) -> None:
    start = {"scenario": "shared", "overrides": {"phases": {"cyclic": {"rounds": 1, "cohort": 1}}}}
    rows = {"random": {}, "started": {"start": start}}
    own = {"start": {"scenario": "shared", "overrides": {"data.clients": 3}}}
    columns = {"two": {"start.overrides.phases.cyclic.cohort": 2}, "its own": own}
    scenarios = load_grid(write(folder, rows=rows, columns=columns, seeds=[0])).scenarios()
    assert scenarios[GridPlace("table", "random", "two", 0)].start is None
    (two,) = starts_of(scenarios[GridPlace("table", "started", "two", 0)].start)
    assert (two.scenario.phases[0].rounds, two.scenario.phases[0].settings.cohort) == (1, 2)
    for row in rows:
        (found,) = starts_of(scenarios[GridPlace("table", row, "its own", 0)].start)
        assert found.scenario.data.clients == 3
        assert found.scenario.phases == load_scenario(folder / "shared.toml").phases


def test_a_published_figure_is_a_number_or_a_mean_and_a_deviation(folder: Path) -> None:
    published = {"loss_mean": {"FedAvg": {"β = 0.1": [78.96, 2.98], "β = 1.0": 64.8}}}
    grid = load_grid(write(folder, figures=["loss_mean"], published=published))
    assert grid.published["loss_mean"]["FedAvg"] == {"β = 0.1": (78.96, 2.98), "β = 1.0": 64.8}
    assert grid.metrics == ()


@pytest.mark.parametrize("skip", ["FedAvg/β = 1.0", "FedAvg / β = 1.0", "*/β = 1.0", "FedAvg/*", "*/*"])
def test_skipped_cells_are_left_out(skip: str, folder: Path) -> None:
    grid = load_grid(write(folder, skip=[skip]))
    skipped = {(row, column) for row in GRID["rows"] for column in GRID["columns"]}
    if not skip.startswith("*"):
        skipped = {cell for cell in skipped if cell[0] == "FedAvg"}
    if not skip.endswith("*"):
        skipped = {cell for cell in skipped if cell[1] == "β = 1.0"}
    assert grid.choose(grid.skip, "skip") == skipped
    left = {(place.row, place.column) for place in grid.scenarios()}
    assert left.isdisjoint(skipped)
    assert len(left) + len(skipped) == 4


def test_grids_are_found_by_name_and_are_no_scenarios(folder: Path) -> None:
    write(folder)
    assert find_grids()["table"] == Path("scenarios/table.grid.toml")
    assert load_grid("table").name == "table"
    assert not {"table", "table.grid"} & set(find_scenarios())


def test_the_scenario_may_lie_beside_the_grid_wherever_that_is(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "own.toml").write_text(SCENARIO)
    for scenario in ("own", "own.toml", "../scenarios/shared.toml", "shared"):
        assert len(load_grid(write(elsewhere, scenario=scenario)).scenarios()) == 8


def test_folder_names_keep_letters_of_any_script() -> None:
    assert folder_name("β = 0.1, Cyclic+") == "β_=_0.1_Cyclic+"
    assert folder_name("../up") == "up"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row": {}}, "row: unknown key; did you mean 'rows'"),
        ({"rows": {}}, "rows: must not be empty"),
        ({"seeds": []}, "seeds: must not be empty"),
        ({"seeds": [-1]}, "seeds.0: must be greater than or equal to 0 (got -1)"),
        ({"seeds": [1, 1]}, "seeds: must not contain duplicates"),
        ({"metrics": ["top"]}, "metrics.0: must be 'best', 'best_round', 'last' or 'mean_last_5' (got 'top')"),
        ({"rows": {"a/b": {}}}, "rows: 'a/b' is not a valid label: it needs a letter or a digit, and no slash"),
        ({"rows": {"..": {}}}, "rows: '..' is not a valid label"),
        ({"columns": {"a b": {}, "a_b": {}}}, "columns: 'a b' and 'a_b' would share the folder 'a_b'"),
        ({"published": {"last": {}}}, "published.last: 'last' is not among metrics: best"),
        ({"published": {"best": {"FedAvgg": {}}}}, "published.best: there is no row 'FedAvgg'; did you mean 'FedAvg'"),
        (
            {"published": {"best": {"FedAvg": {"β = 0.2": 3.0}}}},
            "published.best.FedAvg: there is no column 'β = 0.2'; did you mean 'β = 0.1'",
        ),
        ({"published": {"best": {"FedAvg": {"β = 0.1": "high"}}}}, "published.best.FedAvg.β = 0.1: must be a valid"),
        ({"published": {"best": {"FedAvg": {"β = 0.1": [1.0, 2.0, 3.0]}}}}, "published.best.FedAvg.β = 0.1: must be a"),
        ({"tasks": 0}, "tasks: must be greater than 0 (got 0)"),
        ({"metrics": []}, "metrics: give at least one, or figures"),
        ({"figures": ["a", "a"]}, "figures: must not contain duplicates"),
        ({"figures": ["a"], "reference": "FedAvgg"}, "reference: there is no row 'FedAvgg'; did you mean 'FedAvg'"),
        ({"reference": "FedAvg"}, "reference: has no effect without figures; leave it out"),
        (
            {"figures": ["loss_mean"], "published": {"loss": {}}},
            "published.loss: 'loss' is not among metrics and figures: loss_mean",
        ),
        ({"skip": ["FedAvg"]}, "skip: 'FedAvg' is not row/column (* stands for any)"),
        ({"figures": ["best"]}, "figures: 'best' is a metric, not a column of metrics.jsonl; list it in `metrics`"),
        ({"skip": ["FedAvgg/*"]}, "skip: there is no row 'FedAvgg'; did you mean"),
        ({"scenario": "shred"}, "scenario: no scenario 'shred'; did you mean 'shared'"),
    ],
)
def test_errors_in_a_grid_name_every_key(changes: dict[str, Any], message: str, folder: Path) -> None:
    path = write(folder, **changes)
    with pytest.raises(ScenarioError) as caught:
        load_grid(path)
    assert str(caught.value).startswith("grid 'table':\n")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "overrides", "message"),
    [
        (
            {"rows": {"a": {"data.client": 3}}},
            [],
            "grid 'table', a / β = 0.1: scenario 'shared':\ndata.client: unknown",
        ),
        ({"rows": {"a": {"phases.cyclik.rounds": 3}}}, [], "a / β = 0.1: phases.cyclik: no phase is called 'cyclik'"),
        ({"rows": {"a": {"seed": 3}}}, [], "a / β = 0.1: seed: a grid uses `seeds` instead"),
        ({}, ["seed=3"], "FedAvg / β = 0.1: seed: a grid uses `seeds` instead"),
        (
            {"tasks": 2, "rows": {"a": {"data": {"seed": 3}}}},
            [],
            "a / β = 0.1: data.seed: the grid's `tasks` set it; leave it out",
        ),
        ({"tasks": 2}, ["data.seed=3"], "FedAvg / β = 0.1: data.seed: the grid's `tasks` set it"),
        (
            {"rows": {"a": {"start": {"scenario": "shared", "overrides": {"seed": 1}}}}},
            [],
            "a / β = 0.1: start.overrides.seed: the grid's `seeds` set it; leave it out",
        ),
        ({}, ["start.overrides.data.clients=3"], "start.overrides: no cell starts from a scenario; leave it out"),
        (
            {"columns": {"x": {"start": {"overrides": {"data.clients": 3}}}}},
            [],
            "grid 'table': columns.x.start.overrides: no cell of the column starts from a scenario; leave it out",
        ),
    ],
)
def test_errors_in_a_cell_name_the_cell(
    changes: dict[str, Any], overrides: list[str], message: str, folder: Path
) -> None:
    grid = load_grid(write(folder, **changes))
    with pytest.raises(ScenarioError) as caught:
        grid.scenarios(overrides)
    assert message in str(caught.value)


def test_an_unknown_grid_offers_the_nearest(folder: Path) -> None:
    write(folder)
    with pytest.raises(ScenarioError, match=r"no grid 'tabel'; did you mean 'table'"):
        load_grid("tabel")


def test_a_grid_has_a_name_of_its_own() -> None:
    assert Grid.model_validate(GRID).name == "grid"
