"""`rayfl list --paper`: every table and figure with its grids, data, core-hours and verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.__main__ import main
from rayfl.config.scenario_files import find_papers
from rayfl.studies.papers import load_paper


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without scenarios, and a data folder without data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYFL_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


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


def test_data_is_what_its_grids_and_their_starts_find(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "cifar10").mkdir(parents=True)
    subset = pa.table({"label": list(range(10))})
    pq.write_table(subset, data / "cifar10" / "cifar10_few.parquet")
    table = listed("fps", capsys)["Tables 2, 3"]
    assert table["data"] == {"cifar10": "subset", "fractals": "generated", "tiny_imagenet": "stand-in"}
    assert table["skipped_data"] == {"imagenet": "missing", "places365_resnet18.safetensors": "missing"}
    pq.write_table(pa.table({"label": [0] * 60_000}), data / "cifar10" / "cifar10_few.parquet")
    found = listed("fps", capsys)["Tables 2, 3"]["data"]
    assert found == {"cifar10": "found", "fractals": "generated", "tiny_imagenet": "stand-in"}


def test_a_damaged_file_is_left_to_the_run(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "cifar10").mkdir(parents=True)
    (data / "cifar10" / "cifar10.parquet").write_bytes(b"no Parquet")
    assert listed("cyclicfl", capsys)["Figure 6"]["data"] == {"cifar10": "found"}


def test_an_unknown_paper_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--paper", "fsp"]) != 0
    assert capsys.readouterr().err == "error: no paper 'fsp'; known: coprefl, cyclicfl, fedbug, fps\n"


def test_a_text_beside_a_paper_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["list", "CIFAR", "--paper", "fps"])
    assert "argument --paper: lists one paper whole; leave out the text" in capsys.readouterr().err
