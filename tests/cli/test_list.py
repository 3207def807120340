"""`rayfl list`: by paper, with data and cost, one line for each in a pipe, or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rayfl.__main__ import main
from rayfl.cli.list import OWN, ExpectedCost, ScenarioEntry, grid_entries, groups, scenario_entries
from rayfl.config.loader import load_scenario
from rayfl.config.scenario_files import find_grids, find_scenarios
from rayfl.studies.grid.schema import load_grid

FASHION = "fashion-mnist/FashionMNIST/raw/train-images-idx3-ubyte.gz"


@pytest.fixture(autouse=True)
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without scenarios, and a data folder without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYFL_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture(scope="module")
def entries() -> dict[str, ScenarioEntry]:
    """The shipped scenarios."""
    return {entry.name: entry for entry in scenario_entries()}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few scenarios and grids only."""
    for kind, find in (("scenarios", find_scenarios), ("grids", find_grids)):
        chosen = {name: path for name, path in find().items() if name in FEW}
        monkeypatch.setattr(f"rayfl.cli.list.find_{kind}", lambda chosen=chosen: chosen)


FEW = (
    *("femnist_cyclic", "femnist_fedasync", "cifar10_cyclic", "cifar10_fedbug"),
    *("fashion_mnist_cyclic", "fashion_mnist_fedavg", "fps_moco_32", "imagenet_32"),
    *("cyclicfl_table_2", "fedbug_table_1"),
)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_everything_is_listed_once_under_its_paper_in_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    said = lines(capsys)
    first = [line.split()[0] for line in said]
    for name in (*find_scenarios(), *find_grids()):
        assert first.count(name) == 1
    titles = groups()
    assert [line for line in said if line in titles.values()][: len(titles)] == list(titles.values())
    assert said.index(titles["cyclicfl"]) < first.index("femnist_cyclic") < said.index(titles["fedbug"])


def test_availability_follows_the_files_in_the_data_folder(few: None, no_data: Path) -> None:
    def availability() -> dict[str, str]:
        return {entry.name: entry.availability for entry in scenario_entries()}

    before = availability()
    (no_data / FASHION).parent.mkdir(parents=True)
    (no_data / FASHION).touch()
    after = availability()
    assert before["fashion_mnist_cyclic"] == "stand-in"
    assert after["fashion_mnist_cyclic"] == "found"
    assert (before["fps_moco_32"], before["imagenet_32"]) == ("generated", "missing")
    assert {name for name in after if after[name] != before[name]} == {"fashion_mnist_cyclic", "fashion_mnist_fedavg"}


def test_cost_is_counted_over_all_phases(entries: dict[str, ScenarioEntry]) -> None:
    clients = load_scenario("femnist_cyclic").data.clients
    assert clients == 190
    # 100 relay rounds of a quarter of the clients, then 900 parallel ones of a tenth
    assert entries["femnist_cyclic"].cost == ExpectedCost(1000, 100 * (190 // 4) + 900 * (190 // 10))


@pytest.mark.parametrize("name", ["femnist_fedasync", "femnist_fedbuff"])
def test_an_asynchronous_scenario_costs_the_answers_that_the_server_collects(
    name: str, entries: dict[str, ScenarioEntry]
) -> None:
    rounds, buffer = {"femnist_fedasync": (9000, 1), "femnist_fedbuff": (900, 10)}[name]
    assert entries[name].cost == ExpectedCost(rounds, rounds * buffer)


def test_cost_depends_on_the_data_where_a_share_of_unknown_clients_is_drawn(entries: dict[str, ScenarioEntry]) -> None:
    assert entries["cityscapes_fps"].cost == ExpectedCost(100, None)


def test_runs_of_a_grid_are_those_of_its_cells() -> None:
    runs = {entry.name: entry.runs for entry in grid_entries("cyclicfl")}
    grid = load_grid(find_grids()["cyclicfl_table_2"])
    assert runs["cyclicfl_table_2"] == len(grid.scenarios())


def test_a_text_filters_by_name_title_paper_and_data(few: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "FEMNIST", "--scenarios"]) == 0
    names = {line.split()[0] for line in lines(capsys)}
    assert {"femnist_cyclic", "femnist_fedasync"} <= names
    assert not {"cifar10_cyclic", "cyclicfl_table_2"} & names
    assert main(["list", "gradual unfreezing framework", "--grids"]) == 0
    names = {line.split()[0] for line in lines(capsys)}
    assert "fedbug_table_1" in names
    assert "cifar10_fedbug" not in names


def test_json_has_what_the_tables_have(few: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "femnist_cyclic", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (entry,) = (entry for entry in found["scenarios"] if entry["name"] == "femnist_cyclic")
    assert entry["paper"] == groups()["cyclicfl"]
    assert entry["cost"] == {"rounds": 1000, "client_updates": 21800}
    assert entry["quick"]["rounds"] < 100
    assert entry["availability"] == "stand-in"


def test_your_own_come_first_and_one_that_is_not_valid_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "broken.toml").write_text(
        'title = "Mine"\nmodel = "lenet5"\ndata = { name = "femnist" }\n'
        '[[phases]]\nname = "only"\nrounds = 1\ncohrt = 1\ncohort = 1\n'
    )
    assert main(["list", "--scenarios"]) == 0
    said = lines(capsys)
    assert said[0] == OWN
    assert "broken" in said[2]
    assert "Mine (not valid: phases.only.cohrt: unknown key" in said[2]


def test_a_text_that_nothing_contains_is_reported(few: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "xyzzy"]) == 1
    assert capsys.readouterr().err == "no scenario or grid contains 'xyzzy'; `rayfl list` lists all\n"


@pytest.mark.parametrize("folder", groups())
def test_every_title_belongs_to_a_folder_of_scenarios(folder: str) -> None:
    assert folder in {path.parent.name for path in (*find_scenarios().values(), *find_grids().values())}
