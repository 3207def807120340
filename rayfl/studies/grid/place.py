"""What the place of a run in a grid determines: its folder, and the seed and task of its scenario."""

from __future__ import annotations

import re

from rayfl.config.scenario import Scenario
from rayfl.runs.archive import GridPlace


def folder_of(place: GridPlace) -> str:
    """The folder of a run in that of its grid: `FedAvg/beta_0.1/seed_0`, or `.../seed_0/task_3`."""
    task = "" if place.task is None else f"/task_{place.task}"
    return f"{folder_name(place.row)}/{folder_name(place.column)}/seed_{place.seed}{task}"


def with_place(scenario: Scenario, place: GridPlace) -> Scenario:
    """The scenario with the seed and task of a place; the scenario that it starts from gets the same seed."""
    update: dict[str, object] = {"seed": place.seed}
    if place.task is not None:
        update["data"] = scenario.data.model_copy(update={"seed": place.task})
    start = scenario.start
    if start is not None and start.scenario is not None:
        overrides = {**start.overrides, "seed": place.seed}
        update["start"] = start.model_copy(update={"overrides": overrides})
    return scenario.model_copy(update=update)


def folder_name(label: str) -> str:
    """A label as a folder name: letters and digits of any script and . + - = are kept, anything else becomes _."""
    return re.sub(r"[^\w.+=-]+", "_", label).strip("._")
