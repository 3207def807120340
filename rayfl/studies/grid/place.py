"""The place of a run in a grid, its folder, and its effect on the scenario."""

from __future__ import annotations

import re
from typing import NamedTuple

from rayfl.config.scenario import Scenario


class Place(NamedTuple):
    """The place of a run.

    Attributes:
        row: The label of its row.
        column: The label of its column.
        seed: Its seed.
        task: Its task, from 0; None in a grid without tasks.
    """

    row: str
    column: str
    seed: int
    task: int | None = None

    def __str__(self) -> str:
        task = "" if self.task is None else f" / task {self.task}"
        return f"{self.row} / {self.column} / seed {self.seed}{task}"

    @property
    def folder(self) -> str:
        """The folder of the run in that of its grid: `FedAvg/beta_0.1/seed_0`, or `.../seed_0/task_3`."""
        task = "" if self.task is None else f"/task_{self.task}"
        return f"{folder_name(self.row)}/{folder_name(self.column)}/seed_{self.seed}{task}"


def with_place(scenario: Scenario, place: Place) -> Scenario:
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
