"""Checks what of a grid's cells needs data and networks, before the first of them starts."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from rayfl.config.scenario import CHANGES_NO_RESULT, Scenario
from rayfl.engine.job import Job
from rayfl.engine.phase_checks import check_scenario
from rayfl.engine.requirements import check_requirements
from rayfl.errors import RayflError
from rayfl.grid.cells import Cell
from rayfl.models.flat import FlatModel
from rayfl.planning.cohort import check_cohort
from rayfl.preparation import prepare
from rayfl.resolution import resolve
from rayfl.start.initial_weights import check_start, first_model

KEPT = 4
"""Data sets with networks that are held at once."""


def check_cells(cells: Iterable[Cell], data_dir: Path) -> None:
    """Checks the first cell of every row and column, and the scenarios that it starts from, as a run would.

    Cells that differ in seed and task alone are alike in everything that is checked but what is drawn at random.

    Args:
        cells: What is to be run.
        data_dir: Where real data lies.

    Raises:
        RayflError: What the run of a cell would have raised before its first round; says which cell.
    """
    prepared = _Prepared(data_dir)
    first: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first.setdefault((cell.row, cell.column), cell)
    for cell in first.values():
        try:
            job, model = prepared.checked(cell.scenario)
            if cell.scenario.start is not None:
                check_start(cell.scenario.start, first_model(job, model), prepared.checked)
        except RayflError as error:
            raise type(error)(f"{cell}: {error}") from error


class _Prepared:
    """Prepares scenarios once that have the same data and network: those that differ in their phases alone.

    Those of which a phase has a task, network or metrics of its own are alike where all their phases are.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._kept: OrderedDict[str, tuple[Job, FlatModel]] = OrderedDict()

    def checked(self, scenario: Scenario) -> tuple[Job, FlatModel]:
        """Checks a scenario; the job may be that of another with the same data and network.

        Raises:
            RayflError: Something is wrong with it.
        """
        scenario = resolve(scenario)
        alike = not any(phase.task or phase.model or phase.metrics is not None for phase in scenario.phases)
        tables = scenario.model_dump(mode="json", exclude={*CHANGES_NO_RESULT, "start", "callbacks"})
        key = json.dumps({**tables, "phases": "any" if alike else tables["phases"]}, sort_keys=True)
        if key not in self._kept:
            self._kept[key] = prepare(scenario, self._data_dir)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[key]
        self._kept.move_to_end(key)
        job, model = self._kept[key]
        if not alike:
            return job, model
        store, phases = job.result.store, len(scenario.phases)
        check_scenario(scenario)
        for phase in scenario.phases:
            check_cohort(phase, f"phases.{phase.name}", store.num_clients)
        check_requirements(scenario, [model.module] * phases, [job.result] * phases)
        return job, model
