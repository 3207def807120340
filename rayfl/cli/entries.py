"""The entries of `rayfl list`: every scenario and grid with its paper or topic, its data and its cost.

The folder of a file in `scenarios/` says which paper or topic it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rayfl.cli.availability import Availability, availability, needs_of_grid, worst
from rayfl.config.loader import load_scenario, read_scenario
from rayfl.config.phase import AsynchronousPhase
from rayfl.config.scenario import Scenario
from rayfl.config.scenario_files import find_grids, find_scenarios, is_shipped
from rayfl.engine.plan.cohort import cohort_sizes, expected_cohort_size
from rayfl.errors import ScenarioError
from rayfl.runs.start_chain import with_starts
from rayfl.studies.grid.schema import load_grid
from rayfl.studies.papers import titles

TOPICS: Mapping[str, str] = {
    "privacy": "Differential privacy",
    "asynchronous": "Asynchronous federated learning",
    "starts": "Starting points compared",
}
"""The titles of the folders that belong to no paper. Those of papers are in their `.paper.toml` files."""

OTHERS = "Other scenarios shipped with rayfl"
OWN = "Your own"


def groups() -> Mapping[str, str]:
    """The titles of all folders, papers first, in the order of the list.

    Raises:
        ScenarioError: The file of a paper cannot be read or has no title.
    """
    return {**titles(), **TOPICS}


def paper_of(path: Path, known: Mapping[str, str]) -> str:
    """The title of the group of a scenario or grid, among known titles of folders."""
    return known.get(path.parent.name, OTHERS) if is_shipped(path) else OWN


def in_order(title: str, known: Mapping[str, str]) -> int:
    """The position of a group in lists: your own files come first."""
    return [OWN, *known.values(), OTHERS].index(title)


@dataclass(frozen=True)
class ExpectedCost:
    """The amount of training in a scenario.

    Attributes:
        rounds: Rounds of all phases.
        client_updates: Expected number over all rounds; None if it depends on the number of clients in the data.
        exact: Whether every run has just as many: the size of no cohort is drawn, and no client is unavailable or late.
    """

    rounds: int
    client_updates: int | None
    exact: bool = True


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
        needs: The data sets and files of weights of the scenario and of those that it starts from.
    """

    name: str
    title: str
    paper: str
    data: str = ""
    availability: Availability = "own"
    cost: ExpectedCost | None = None
    quick: ExpectedCost | None = None
    error: str = ""
    needs: Mapping[str, Availability] = field(default_factory=dict)

    @property
    def runs_here(self) -> bool:
        """Whether it runs with what is at hand, perhaps on a stand-in for its data."""
        return not self.error and "missing" not in self.needs.values()


@dataclass(frozen=True)
class GridEntry:
    """A grid in the list.

    Attributes:
        name: Its name, for `rayfl grid`.
        title: The heading of its table.
        paper: The title of its group.
        scenario: Name of the scenario behind its cells.
        runs: Number of runs.
        needs: The data sets and files of weights of its cells, and of what they start from; empty if not asked for.
        stand_ins: Whether it runs in full on stand-ins for its data; grids that come with rayfl do not.
    """

    name: str
    title: str
    paper: str
    scenario: str
    runs: int
    needs: Mapping[str, Availability] = field(default_factory=dict)
    stand_ins: bool = False

    @property
    def runs_here(self) -> bool:
        """Whether all its cells run in full with what is at hand."""
        return not {"missing", *(() if self.stand_ins else ("stand-in",))}.intersection(self.needs.values())


def scenario_entries(containing: str = "") -> list[ScenarioEntry]:
    """The scenarios whose name, title, paper or data contains a text, ignoring case, by paper and name.

    Raises:
        ScenarioError: A file cannot be read, or two share a name.
    """
    known = groups()
    entries = [_scenario_entry(name, path, paper_of(path, known)) for name, path in sorted(find_scenarios().items())]
    chosen = [one for one in entries if _contains(containing, one.name, one.title, one.paper, one.data)]
    return sorted(chosen, key=lambda entry: in_order(entry.paper, known))


def grid_entries(containing: str = "", with_needs: bool = False) -> list[GridEntry]:
    """The grids whose name, title, paper or scenario contains a text, ignoring case, by paper and name.

    Args:
        containing: The text.
        with_needs: Whether to find what they need, for which their cells are read.

    Raises:
        ScenarioError: A file cannot be read or is not a valid grid, or two share a name.
    """
    known = groups()
    entries = []
    for name, path in sorted(find_grids().items()):
        grid, paper = load_grid(path), paper_of(path, known)
        scenario = Path(grid.scenario).stem
        if _contains(containing, name, grid.title, paper, scenario):
            needs = needs_of_grid(grid) if with_needs else {}
            entries.append(GridEntry(name, grid.title, paper, scenario, len(grid.places), needs, not is_shipped(path)))
    return sorted(entries, key=lambda entry: in_order(entry.paper, known))


def _contains(text: str, *where: str) -> bool:
    return any(text.casefold() in one.casefold() for one in where)


def _scenario_entry(name: str, path: Path, paper: str) -> ScenarioEntry:
    tables = read_scenario(path)  # once: most of the time goes into reading
    title = str(tables.get("title", ""))
    try:
        scenario = load_scenario(tables)
        quick = _cost(load_scenario(tables, quick=True)) if tables.get("quick") else None
        data, found, needs = scenario.data.name, availability(scenario), worst(with_starts(scenario))
        return ScenarioEntry(name, title, paper, data, found, _cost(scenario), quick, needs=needs)
    except ScenarioError as error:
        return ScenarioEntry(name, title, paper, error=str(error).splitlines()[-1])


def _cost(scenario: Scenario) -> ExpectedCost:
    clients, updates, exact = scenario.data.clients, 0.0, scenario.participation is None
    for phase in scenario.phases:
        if isinstance(phase, AsynchronousPhase):  # its cohort is those who may start, not those who answer
            updates += phase.rounds * phase.answers_per_step
        elif clients is not None:
            updates += phase.rounds * expected_cohort_size(phase, clients)
            smallest, largest = cohort_sizes(phase, clients)
            exact = exact and smallest == largest
        elif isinstance(phase.settings.cohort, int):
            updates += phase.rounds * phase.settings.cohort
        else:
            return ExpectedCost(_rounds(scenario), None, exact=False)
    return ExpectedCost(_rounds(scenario), round(updates), exact)


def _rounds(scenario: Scenario) -> int:
    return sum(phase.rounds for phase in scenario.phases)
