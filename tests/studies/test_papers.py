"""The lists of tables and figures of the papers agree with the grids and pages that they name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import tomli_w

from rayfl.config.scenario_files import find_grids, find_papers, find_scenarios
from rayfl.errors import ScenarioError
from rayfl.runs.start_chain import with_starts
from rayfl.studies.grid.schema import load_grid
from rayfl.studies.papers import Paper, Tested, data_needed, data_of_grid, load_paper
from tests.docs import pages

ROOT = Path(__file__).parents[2]
PAPERS = find_papers()
LIST: dict[str, Any] = {
    "title": "A paper",
    "page": "docs/results/fps.md",
    "core_hours": {"one": 1.5, "two": 4},
    "items": [
        {"number": "Table 1", "shows": "all", "grids": ["one", "two"], "here": "1 seed", "verdict": "half"},
        {"number": "Table 2", "shows": "a part", "grids": ["two"]},
        {"number": "Figure 1", "shows": "a client", "verdict": "drawing"},
    ],
}


def test_the_papers_are_those_of_the_folders_with_grids() -> None:
    folders = {path.parent.name for path in find_grids().values()}
    assert set(PAPERS) == folders & {"cyclicfl", "fedbug", "coprefl", "fps"}
    assert {path.parent.name for path in PAPERS.values()} == set(PAPERS)
    assert not {"fps", "fps.paper"} & {*find_scenarios(), *find_grids()}


@pytest.mark.parametrize("name", PAPERS)
def test_every_grid_of_a_papers_folder_has_an_item_and_the_reverse(name: str) -> None:
    named = {grid for item in load_paper(name).items for grid in item.grids}
    assert named == {grid for grid, path in find_grids().items() if path.parent.name == name}


@pytest.mark.parametrize("name", PAPERS)
def test_pages_of_verdicts_exist_and_commands_are_rayfls(name: str) -> None:
    paper = load_paper(name)
    for item in paper.items:
        assert (ROOT / paper.page_of(item)).is_file()
        assert re.match(r"rayfl \w+ |python -m rayfl[.\w]+( --out DIR)?$|^$", item.command)


def test_the_verdicts_are_those_of_the_overview_of_results() -> None:
    overview = (ROOT / "docs" / "results" / "index.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^- \*\*([\w ]+)\*\*:", overview, flags=re.MULTILINE))
    assert explained == set(get_args(Tested))


def write(folder: Path, **changes: Any) -> None:
    (folder / "scenarios" / "mine").mkdir(parents=True)
    (folder / "scenarios" / "mine" / "mine.paper.toml").write_text(tomli_w.dumps(LIST | changes))


def test_hours_of_an_item_are_those_of_its_grids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    paper = load_paper("mine")
    assert [paper.hours(item) for item in paper.items] == [5.5, 4, None]


def item(**changes: Any) -> dict[str, Any]:
    return {"items": [{"number": "Table 1", "shows": "all", "grids": ["one", "two"]} | changes]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (item(verdict="good"), "items.0.verdict: must be 'agrees', "),
        (item(verdict="agrees"), "items.0: verdict 'agrees': say in `here` what was run"),
        (item(here="1 seed"), "items.0: verdict 'not run': nothing was run; leave out `here`"),
        (item(grids=["one"]), "core_hours: no item names the grid 'two'"),
        (item(grids=["one", "two", "three"]), "core_hours: 'three' of Table 1 is missing (python -m tools.core_hours"),
        ({"items": [LIST["items"][0], LIST["items"][0]]}, "items: 'Table 1' is listed twice"),
        ({"items": []}, "items: must not be empty"),
    ],
)
def test_a_wrong_list_says_what_is_wrong(
    changes: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, **changes)
    with pytest.raises(ScenarioError) as caught:
        load_paper("mine")
    assert message in str(caught.value)


def test_data_of_starts_is_needed_too_and_that_of_skipped_cells_is_marked() -> None:
    (table,) = (each for each in load_paper("fps").items if each.number == "Tables 2, 3")
    needed = {(need.scenario.data.name, need.skipped) for need in data_needed(table)}
    assert {("cifar10", False), ("fractals", False), ("imagenet", True)} <= needed
    assert ("imagenet", False) not in needed


@pytest.mark.parametrize("name", ["fps_figure_3_tiny_imagenet", "coprefl_table_2", "private_arms"])
def test_few_cells_of_a_grid_stand_for_the_data_that_all_of_them_need(name: str) -> None:
    grid = load_grid(name)
    skipped = grid.choose(grid.skip, "skip")
    every = grid.model_copy(update={"seeds": grid.seeds[:1], "tasks": grid.tasks and 1, "skip": ()}).scenarios()
    of_all = {
        (scenario.data.name, scenario.data.source, (place.row, place.column) in skipped)
        for place, cell in every.items()
        for scenario in with_starts(cell)
    }
    few = list(data_of_grid(grid))
    assert {(need.scenario.data.name, need.scenario.data.source, need.skipped) for need in few} == of_all


def test_the_list_in_the_guide_is_one() -> None:
    (shown,) = (tables for tables in pages.tables("how-to/grids.md") if "items" in tables)
    assert Paper.model_validate(shown).items[0].grids == ("my_grid",)
