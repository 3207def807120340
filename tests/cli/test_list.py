"""`rayfl list`: by paper, with data and cost, one line for each in a pipe, or as JSON; and every item of one paper."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.__main__ import main
from rayfl.cli.entries import OWN, ExpectedCost, ScenarioEntry, grid_entries, groups, scenario_entries
from rayfl.config.loader import load_scenario
from rayfl.config.scenario_files import find_grids, find_papers, find_scenarios
from rayfl.studies.grid.schema import load_grid
from rayfl.studies.papers import load_paper

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
        monkeypatch.setattr(f"rayfl.cli.entries.find_{kind}", lambda chosen=chosen: chosen)


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
    assert entries[name].cost == ExpectedCost(rounds, rounds * buffer, exact=False)


def test_cost_depends_on_the_data_where_a_share_of_unknown_clients_is_drawn(entries: dict[str, ScenarioEntry]) -> None:
    assert entries["cityscapes_fps"].cost == ExpectedCost(100, None, exact=False)


def test_updates_are_marked_where_their_number_is_drawn_or_devices_may_fail(
    entries: dict[str, ScenarioEntry], few: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cifar10_fedbug` draws each client with a probability; `femnist_stragglers` has devices that drop out."""
    marked = {name for name, entry in entries.items() if entry.cost is not None and not entry.cost.exact}
    assert {"cifar10_fedbug", "femnist_stragglers"} <= marked
    assert not {"femnist_cyclic", "cifar100_pretraining_central"} & marked
    assert main(["list", "--scenarios"]) == 0
    (fedbug,) = (line for line in lines(capsys) if line.startswith("cifar10_fedbug"))
    assert "300 rounds, ≈ 300 updates" in fedbug


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


def names_with(*arguments: str) -> list[str]:
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["list", "--json", *arguments]) == 0
    found = json.loads(out.getvalue())
    return [entry["name"] for entry in (*found["scenarios"], *found["grids"])]


def test_data_selects_what_trains_on_it_and_what_starts_from_a_model_of_it(few: None) -> None:
    assert names_with("--data", "cifar10") == ["cifar10_cyclic", "cifar10_fedbug", "cyclicfl_table_2", "fedbug_table_1"]
    assert names_with("--data", "cifar10", "gradual", "--scenarios") == ["cifar10_fedbug"]
    assert names_with("--data", "fractals") == ["fps_moco_32"]


def test_available_leaves_out_what_misses_data_and_grids_in_full_on_stand_ins(few: None, no_data: Path) -> None:
    before = names_with("--available")
    assert "imagenet_32" not in before
    assert {"cifar10_cyclic", "fps_moco_32"} < set(before)
    assert not {"cyclicfl_table_2", "fedbug_table_1"} & set(before)
    (no_data / "cifar10").mkdir(parents=True)
    pq.write_table(pa.table({"label": list(range(10))}), no_data / "cifar10" / "cifar10_few.parquet")
    assert set(names_with("--available")) - set(before) == {"cyclicfl_table_2", "fedbug_table_1"}


def test_data_that_nothing_needs_is_named_with_what_is_near(few: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--data", "cifar"]) == 1
    assert capsys.readouterr().err == "error: --data: nothing here needs data 'cifar'; did you mean 'cifar10'?\n"


@pytest.mark.parametrize(("width", "quick"), [(80, False), (110, True)])
def test_on_a_narrow_terminal_no_line_is_wider_and_below_100_columns_quick_is_left_out(
    width: int, quick: bool, few: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rayfl.console.PIPE_WIDTH", width)
    assert main(["list"]) == 0
    said = lines(capsys)
    assert max(map(len, said)) <= width
    assert any("--quick: " in line for line in said) is quick
    assert any(line.strip().startswith("femnist stand-in; 1,000 rounds, 21,800 updates") for line in said)


def test_json_has_what_the_tables_have(few: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "femnist_cyclic", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (entry,) = (entry for entry in found["scenarios"] if entry["name"] == "femnist_cyclic")
    assert entry["paper"] == groups()["cyclicfl"]
    assert entry["cost"] == {"rounds": 1000, "client_updates": 21800, "exact": True}
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


def listed(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    assert main(["list", "--paper", name, "--json"]) == 0
    return {item["number"]: item for item in json.loads(capsys.readouterr().out)["items"]}


@pytest.mark.parametrize("name", find_papers())
def test_every_item_is_listed_in_the_papers_order_in_a_line_of_its_own(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paper = load_paper(name)
    assert main(["list", "--paper", name]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line]
    assert said[0] == paper.title
    for item, line in zip(paper.items, said[2:], strict=False):
        assert line.startswith(item.number)
        assert line.rstrip().endswith(item.verdict)
        assert all(grid in line for grid in item.grids)


@pytest.mark.parametrize("name", find_papers())
def test_on_a_narrow_terminal_no_line_is_wider(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.console.PIPE_WIDTH", 80)
    assert main(["list", "--paper", name]) == 0
    said = capsys.readouterr().out
    table = said.split("\n\n")[0]
    assert max(map(len, table.splitlines()[2:])) <= 80
    for grid in load_paper(name).core_hours:
        assert grid in said


def test_data_is_what_its_grids_and_their_starts_find(no_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (no_data / "cifar10").mkdir(parents=True)
    subset = pa.table({"label": list(range(10))})
    pq.write_table(subset, no_data / "cifar10" / "cifar10_few.parquet")
    table = listed("fps", capsys)["Tables 2, 3"]
    assert table["data"] == {"cifar10": "subset", "fractals": "generated", "tiny_imagenet": "stand-in"}
    assert table["skipped_data"] == {"imagenet": "missing", "places365_resnet18.safetensors": "missing"}
    pq.write_table(pa.table({"label": [0] * 60_000}), no_data / "cifar10" / "cifar10_few.parquet")
    found = listed("fps", capsys)["Tables 2, 3"]["data"]
    assert found == {"cifar10": "found", "fractals": "generated", "tiny_imagenet": "stand-in"}


def test_a_damaged_file_is_left_to_the_run(no_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (no_data / "cifar10").mkdir(parents=True)
    (no_data / "cifar10" / "cifar10.parquet").write_bytes(b"no Parquet")
    assert listed("cyclicfl", capsys)["Figure 6"]["data"] == {"cifar10": "found"}


def test_an_unknown_paper_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--paper", "fsp"]) != 0
    assert capsys.readouterr().err == "error: no paper 'fsp'; known: coprefl, cyclicfl, fedbug, fps\n"


def test_a_text_beside_a_paper_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["list", "CIFAR", "--paper", "fps"])
    assert "argument --paper: lists one paper whole; leave out the text" in capsys.readouterr().err
