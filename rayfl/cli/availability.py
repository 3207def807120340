"""Whether what a scenario needs is at hand: found by where files lie, without reading them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

from rayfl.config.scenario import Scenario
from rayfl.data.files import KNOWN, data_folder, is_subset
from rayfl.studies.grid.schema import Grid
from rayfl.studies.papers import Item, data_needed, data_of_grid

Availability = Literal["found", "subset", "generated", "own", "stand-in", "missing"]
"""Availability of the data of a scenario. `found`: its files are in the data folder. `subset`: they are, and hold only
a part of the data set. `generated`: it always runs on generated data. `own`: your files or code, or weights that are
downloaded; checked when the scenario runs. `stand-in`: the files are not there, and the scenario runs on generated data
instead, but grids that come with rayfl only with `quick`. `missing`: likewise, and the scenario does not run."""

STYLES = {"found": "green", "subset": "yellow", "stand-in": "yellow", "missing": "red"}


def availability(scenario: Scenario) -> Availability:
    """Availability of the data of a scenario."""
    data = scenario.data
    known = KNOWN.get(data.name)
    if data.source == "generated" or data.name in ("fractals", "handwriting"):
        return "generated"
    if known is None:
        return "own"
    if (found := known.found(data_folder())) is not None:
        return "subset" if is_subset(data.name, found) else "found"
    return "stand-in" if known.generated and data.source == "auto" else "missing"


def needs(item: Item) -> tuple[dict[str, Availability], dict[str, Availability]]:
    """The data sets and files of weights of a paper's table or figure: those of cells that run, and of others alone.

    Raises:
        ScenarioError: A grid or a scenario does not exist or is wrong.
    """
    needed = list(data_needed(item))
    run = worst(scenario for scenario, is_skipped in needed if not is_skipped)
    skipped = worst(scenario for scenario, is_skipped in needed if is_skipped)
    return run, {name: each for name, each in skipped.items() if name not in run}


def needs_of_grid(grid: Grid) -> dict[str, Availability]:
    """The data sets and files of weights of the cells that a grid runs, and of what they start from.

    Raises:
        ScenarioError: A scenario does not exist or is wrong.
    """
    return worst(scenario for scenario, is_skipped in data_of_grid(grid) if not is_skipped)


def worst(scenarios: Iterable[Scenario]) -> dict[str, Availability]:
    """The data sets and files of weights of scenarios, each as available as to the one that finds least."""
    found: dict[str, Availability] = {}
    for scenario in scenarios:
        for name, each in ({scenario.data.name: availability(scenario)} | _weights(scenario)).items():
            found[name] = max(each, found.get(name, each), key=get_args(Availability).index)
    return found


def _weights(scenario: Scenario) -> dict[str, Availability]:
    start = scenario.start
    if start is not None and start.file is not None:
        return {Path(start.file).name: "found" if Path(start.file).exists() else "missing"}
    return {start.weights.split(".")[0]: "own"} if start is not None and start.weights is not None else {}
