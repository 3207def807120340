"""Describes the available scenarios and grids: paper, data and cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rayfl.command_line.papers import in_order, paper_of
from rayfl.config.asynchronous import AsynchronousPhase
from rayfl.config.finding import find_grids, find_scenarios
from rayfl.config.loading import load_scenario, read_scenario
from rayfl.config.scenario import Scenario
from rayfl.data.folders import data_folder
from rayfl.data.known_files import KNOWN
from rayfl.errors import ScenarioError
from rayfl.grid.schema import load_grid
from rayfl.planning.cohort import expected_cohort_size

Availability = Literal["found", "stand-in", "missing", "generated", "own"]
"""Availability of the data of a scenario. `found`: its files are in the data folder. `stand-in`: they are not, and the
scenario runs on generated data instead. `missing`: they are not, and the scenario does not run without them.
`generated`: it always runs on generated data. `own`: your files or code, checked when the scenario runs."""


@dataclass(frozen=True)
class Cost:
    """The amount of training in a scenario.

    Attributes:
        rounds: Rounds of all phases.
        client_updates: Expected number over all rounds; None if it depends on the number of clients in the data.
    """

    rounds: int
    client_updates: int | None


@dataclass(frozen=True)
class ScenarioEntry:
    """A scenario in the list.

    Attributes:
        name: Its name, for `rayfl run`.
        title: Its title, possibly empty.
        paper: The title of its group.
        data: The name of its data set, or `package.module:object`.
        availability: Whether its data is available.
        cost: Its cost; None if the scenario is not valid.
        quick: Its cost with `--quick`; None without a [quick] table.
        error: The last line of the error; empty if the scenario is valid.
    """

    name: str
    title: str
    paper: str
    data: str = ""
    availability: Availability = "own"
    cost: Cost | None = None
    quick: Cost | None = None
    error: str = ""


@dataclass(frozen=True)
class GridEntry:
    """A grid in the list.

    Attributes:
        name: Its name, for `rayfl grid`.
        title: The heading of its table.
        paper: The title of its group.
        scenario: Name of the scenario behind its cells.
        runs: Number of runs.
    """

    name: str
    title: str
    paper: str
    scenario: str
    runs: int


def scenario_entries(containing: str = "") -> list[ScenarioEntry]:
    """The scenarios whose name, title, paper or data contains a text, ignoring case, by paper and name.

    Raises:
        ScenarioError: A file cannot be read, or two share a name.
    """
    found = [_scenario_entry(name, path) for name, path in sorted(find_scenarios().items())]
    chosen = [one for one in found if _contains(containing, one.name, one.title, one.paper, one.data)]
    return sorted(chosen, key=lambda entry: in_order(entry.paper))


def grid_entries(containing: str = "") -> list[GridEntry]:
    """The grids whose name, title, paper or scenario contains a text, ignoring case, by paper and name.

    Raises:
        ScenarioError: A file cannot be read or is not a valid grid, or two share a name.
    """
    found = []
    for name, path in sorted(find_grids().items()):
        grid = load_grid(path)
        found.append(GridEntry(name, grid.title, paper_of(path), Path(grid.scenario).stem, len(grid.places)))
    chosen = [one for one in found if _contains(containing, one.name, one.title, one.paper, one.scenario)]
    return sorted(chosen, key=lambda entry: in_order(entry.paper))


def _contains(text: str, *where: str) -> bool:
    return any(text.casefold() in one.casefold() for one in where)


def _scenario_entry(name: str, path: Path) -> ScenarioEntry:
    tables = read_scenario(path)  # once: most of the time goes into reading
    title = str(tables.get("title", ""))
    try:
        scenario = load_scenario(tables)
        quick = _cost(load_scenario(tables, quick=True)) if tables.get("quick") else None
        return ScenarioEntry(
            name, title, paper_of(path), scenario.data.name, _availability(scenario), _cost(scenario), quick
        )
    except ScenarioError as error:
        return ScenarioEntry(name, title, paper_of(path), error=str(error).splitlines()[-1])


def _availability(scenario: Scenario) -> Availability:
    data = scenario.data
    known = KNOWN.get(data.name)
    if data.source == "generated" or data.name in ("fractals", "handwriting"):
        return "generated"
    if known is None:
        return "own"
    if known.found(data_folder()) is not None:
        return "found"
    return "stand-in" if known.generated and data.source == "auto" else "missing"


def _cost(scenario: Scenario) -> Cost:
    clients, updates = scenario.data.clients, 0.0
    for phase in scenario.phases:
        if isinstance(phase, AsynchronousPhase):  # its cohort is those who may start, not those who answer
            updates += phase.rounds * phase.answers_per_step
        elif clients is not None:
            updates += phase.rounds * expected_cohort_size(phase, clients)
        elif isinstance(phase.settings.cohort, int):
            updates += phase.rounds * phase.settings.cohort
        else:
            return Cost(_rounds(scenario), None)
    return Cost(_rounds(scenario), round(updates))


def _rounds(scenario: Scenario) -> int:
    return sum(phase.rounds for phase in scenario.phases)
