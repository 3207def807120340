"""The fair test of CoPreFL: only the last grid uses held-out data, and the search uses no task of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayfl.config.scenario import Scenario
from rayfl.config.scenario_files import find_grids
from rayfl.data.subsets import at_places
from rayfl.runs.start_chain import starts_of
from rayfl.studies.grid.cells import cells_of
from rayfl.studies.grid.schema import load_grid

pytestmark = pytest.mark.slow

CLASSES, WRITERS = 100, 385
LAST = ("coprefl_fair_held_out", "coprefl_fair_held_out_femnist")
SEARCH = ("coprefl_fair_search", "coprefl_fair_server_search")
REPORT = ("coprefl_fair_cifar100", "coprefl_fair_head", "coprefl_fair_server")
FEMNIST = ("coprefl_fair_femnist_search", "coprefl_fair_femnist")
EARLIER = (*SEARCH, *REPORT, *FEMNIST)

Kept = tuple[set[int], set[int]]
"""The data of the tasks, and of their starts."""


def used(scenario: Scenario) -> set[int]:
    """Returns all classes or writers that may be drawn."""
    data = scenario.data
    if data.owners is not None:
        return set(at_places(data.owners, "owners", WRITERS, "FEMNIST").tolist())
    assert data.classes is not None
    return set(at_places(data.classes, "classes", CLASSES, "CIFAR-100").tolist())


def of_grid(name: str) -> Kept:
    tasks: set[int] = set()
    before: set[int] = set()
    for cell in {(cell.row, cell.column): cell for cell in cells_of(load_grid(name), Path("nowhere"))}.values():
        tasks |= used(cell.scenario)
        before |= {one for link in starts_of(cell.scenario.start) for one in used(link.scenario)}
    return tasks, before


@pytest.fixture(scope="module")
def grids() -> dict[str, Kept]:
    return {name: of_grid(name) for name in (*EARLIER, *LAST)}


def test_these_are_all_grids_of_the_test() -> None:
    assert {name for name in find_grids() if "fair" in name} == {*EARLIER, *LAST}


@pytest.mark.parametrize(
    ("last", "number", "others"),
    [(LAST[0], 5, (*SEARCH, *REPORT)), (LAST[1], 10, FEMNIST)],
)
def test_samples_set_aside_are_in_no_other_grid(
    grids: dict[str, Kept], last: str, number: int, others: tuple[str, ...]
) -> None:
    aside, before = grids[last]
    assert len(aside) == number
    assert not aside & before
    for name in others:
        tasks, pretraining = grids[name]
        assert not aside & (tasks | pretraining)
        assert not tasks & pretraining


def test_the_search_meets_no_class_of_the_reported_tasks(grids: dict[str, Kept]) -> None:
    reported = set().union(*(grids[name][0] for name in REPORT))
    assert len(reported) == 20
    for name in SEARCH:
        tasks, pretraining = grids[name]
        assert (len(tasks), len(pretraining)) == (15, 60)
        assert not reported & (tasks | pretraining)


def test_the_search_meets_no_writer_of_the_reported_tasks(grids: dict[str, Kept]) -> None:
    reported = grids[FEMNIST[1]][0]
    assert len(reported) == 75
    tasks, pretraining = grids[FEMNIST[0]]
    assert (len(tasks), len(pretraining)) == (60, 240)
    assert not reported & (tasks | pretraining)


def test_the_last_grid_scores_the_starts_of_the_report(grids: dict[str, Kept]) -> None:
    for last, report in zip(LAST, ("coprefl_fair_cifar100", "coprefl_fair_femnist"), strict=True):
        assert grids[last][1] == grids[report][1]
        starts = [
            {(cell.row, cell.place.seed): cell.scenario.start for cell in cells_of(load_grid(name), Path("nowhere"))}
            for name in (last, report)
        ]
        assert starts[0] == starts[1]
