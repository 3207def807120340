"""The tables and figures of a paper: what makes each, what it needs, what was run, and the verdict.

The file `scenarios/<paper>/<paper>.paper.toml` lists them, beside the grids that make them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field, PositiveFloat, ValidationError, model_validator

from rayfl.config.loader import read_toml
from rayfl.config.scenario import Scenario
from rayfl.config.scenario_files import find_papers
from rayfl.config.section import Section
from rayfl.config.validation import explain
from rayfl.errors import ScenarioError
from rayfl.runs.start_chain import with_starts
from rayfl.studies.grid.schema import Grid, load_grid

Tested = Literal["agrees", "half", "differs", "unclear", "not tested", "not run"]
"""The verdicts of docs/results, which explains them."""

Claimless = Literal["drawing", "settings", "not seen"]
"""What makes no claim: a `drawing`, the `settings` of experiments, or what was `not seen`, since the text of the paper
that rayfl follows does not describe it."""

Verdict = Tested | Claimless


class Item(Section):
    """A table or figure of a paper, or an experiment of ours beside them.

    Attributes:
        number: Its number, as `Table 6`.
        shows: What it shows, in a few words.
        grids: The grids that make it. Default: none.
        command: The command that makes it from runs of the grids, or alone. Default: empty.
        here: How much of it was run here, in a few words. Default: empty.
        verdict: What the runs say about its claim; by default that it was not run.
        page: The page with these runs. Default: that of the paper.
    """

    number: str
    shows: str
    grids: tuple[str, ...] = ()
    command: str = ""
    here: str = ""
    verdict: Verdict = "not run"
    page: str | None = None

    @model_validator(mode="after")
    def _verdict_fits(self) -> Item:
        idle = self.verdict == "not run" or self.verdict in get_args(Claimless)
        if idle == bool(self.here):
            what = "nothing was run; leave out `here`" if idle else "say in `here` what was run"
            raise ValueError(f"verdict '{self.verdict}': {what}")
        return self


class Paper(Section):
    """A paper.

    Attributes:
        title: Its short name and its title.
        page: The page of its results, from the repository's root.
        note: What readers need to know about the whole list. Default: empty.
        core_hours: Hours that one core needs for all cells and starts of a grid in full, by grid, as
            `python -m tools.core_hours` estimates them. Default: no grids.
        items: Its tables and figures, in its order.
    """

    title: str
    page: str
    note: str = ""
    core_hours: dict[str, PositiveFloat] = Field(default_factory=dict)
    items: Annotated[tuple[Item, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _every_grid_has_hours_and_an_item(self) -> Paper:
        numbers = [item.number for item in self.items]
        if twice := [number for number in numbers if numbers.count(number) > 1]:
            raise ValueError(f"items: '{twice[0]}' is listed twice")
        used = {grid: item.number for item in self.items for grid in item.grids}
        if missing := used.keys() - self.core_hours.keys():
            grid = min(missing)
            raise ValueError(f"core_hours: '{grid}' of {used[grid]} is missing (python -m tools.core_hours {grid})")
        if idle := self.core_hours.keys() - used.keys():
            raise ValueError(f"core_hours: no item names the grid '{min(idle)}'")
        return self

    def hours(self, item: Item) -> float | None:
        """Core-hours of all grids of an item; None without grids."""
        return sum(self.core_hours[grid] for grid in item.grids) if item.grids else None

    def page_of(self, item: Item) -> str:
        """The page with the runs of an item."""
        return item.page or self.page


class NeededData(NamedTuple):
    """A scenario of an item, for its data.

    Attributes:
        scenario: A cell, or what it starts from.
        skipped: Whether only cells that the grid lists and skips need it.
    """

    scenario: Scenario
    skipped: bool


def load_paper(name: str) -> Paper:
    """Loads the list of a paper.

    Raises:
        ScenarioError: There is no such list, it cannot be read, or it has a wrong key.
    """
    known = find_papers()
    if name not in known:
        raise ScenarioError(f"no paper '{name}'; known: {', '.join(sorted(known)) or 'none'}")
    tables = read_toml(known[name])
    try:
        return Paper.model_validate(tables)
    except ValidationError as error:
        raise ScenarioError(f"paper '{name}' ({known[name]}):\n{explain(error, Paper, tables)}") from None


def data_needed(item: Item) -> Iterator[NeededData]:
    """The scenarios that need the data of an item; see `data_of_grid`.

    Raises:
        ScenarioError: A grid or a scenario does not exist or is wrong.
    """
    for name in item.grids:
        yield from data_of_grid(load_grid(name))


def data_of_grid(grid: Grid) -> Iterator[NeededData]:
    """A grid's cells, and what they start from, in the first seed and task: one cell for each kind of data needed.

    Raises:
        ScenarioError: A scenario does not exist or is wrong.
    """
    skipped = grid.choose(grid.skip, "skip")
    cells = {(kind, cell in skipped): cell for cell, kind in reversed(grid.kinds_of_data().items())}
    first = grid.model_copy(update={"seeds": grid.seeds[:1], "tasks": grid.tasks and 1, "skip": ()})
    for place, cell in first.scenarios(only=set(cells.values())).items():
        for scenario in with_starts(cell):
            yield NeededData(scenario, (place.row, place.column) in skipped)


def titles() -> Mapping[str, str]:
    """The titles of all papers by name; only the files' titles are read.

    Raises:
        ScenarioError: A file cannot be read or has no title.
    """
    found = {name: read_toml(path).get("title") for name, path in find_papers().items()}
    if nameless := [name for name, title in found.items() if not isinstance(title, str)]:
        raise ScenarioError(f"paper '{nameless[0]}': title is missing")
    return {name: str(title) for name, title in found.items()}
