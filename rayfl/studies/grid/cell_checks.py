"""Validates all cells of a grid against their data and networks, before the first run."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

from rayfl.callbacks.selection import build_callbacks, check_ranking_metrics
from rayfl.config.registry import nearest
from rayfl.config.scenario import CHANGES_NO_RESULT, Scenario
from rayfl.data.files import KNOWN
from rayfl.data.store import ShardStore
from rayfl.engine.columns import columns_of
from rayfl.engine.plan.cohort import check_cohort
from rayfl.engine.plan.requirements import check_requirements
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.scenario_checks import check_rounds, check_scenario
from rayfl.engine.plan.symbolic_rounds import with_traces
from rayfl.errors import DataError, RayflError, ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.runs.initial_weights import check_start, first_model
from rayfl.runs.preparation import KEPT, Prepared
from rayfl.runs.resolution import resolve
from rayfl.runs.start_chain import with_starts
from rayfl.studies.grid.cells import Cell


def check_cells(cells: Iterable[Cell], prepared: Prepared, figures: Sequence[str] = ()) -> None:
    """Checks the first cell of every row and column, and the scenarios that it starts from, as a run would.

    Cells that differ only in seed and task also differ only in random draws, which the checks do not depend on.

    Args:
        cells: The cells to be run.
        prepared: Loads the data; afterwards it holds the latest.
        figures: Columns that the grid shows.

    Raises:
        RayflError: A run will have no such column, or any error that the run of a cell would raise before its first
            round; names the cell.
    """
    checks = _Checks(prepared)
    first: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first.setdefault((cell.row, cell.column), cell)
    for cell in first.values():
        try:
            run_plan, model = checks.checked(cell.scenario)
            _check_columns(resolve(cell.scenario), run_plan.result.store, figures)
            if cell.scenario.start is not None:
                check_start(cell.scenario.start, first_model(run_plan, model), checks.checked)
        except RayflError as error:
            raise type(error)(f"{cell}: {error}") from error


def check_no_stand_ins(cells: Iterable[Cell], data_dir: Path) -> None:
    """Checks that the data of cells, and of the scenarios that they start from, need no generated stand-in.

    Looks only for where the files lie.

    Args:
        cells: The cells to be run.
        data_dir: The folder with real data.

    Raises:
        DataError: Names a cell and its missing data.
    """
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        if (cell.row, cell.column) in seen:
            continue
        seen.add((cell.row, cell.column))
        for scenario in with_starts(cell.scenario):
            known = KNOWN.get(scenario.data.name)
            if known is None or scenario.data.source != "auto" or known.found(data_dir) is not None:
                continue
            instead = "; for generated data instead, use --quick or data.source=generated" if known.generated else ""
            raise DataError(f"{cell}: {known.title} not found: {known.get.format(folder=data_dir)}{instead}")


def _check_columns(scenario: Scenario, store: ShardStore, figures: Sequence[str]) -> None:
    """Checks the columns of metrics.jsonl that the grid and the scenario's callbacks name."""
    check_ranking_metrics(build_callbacks(scenario), scenario, store, "callbacks.{}")
    known = columns_of(scenario, scenario.phases[-1], store)
    for name in figures:
        if known is not None and name not in known:
            raise ScenarioError(f"figures: no column of metrics.jsonl is called '{name}'; {nearest(name, known)}")


class _Checks:
    """Prepares scenarios with the same data and network, which differ only in their phases, once.

    If a phase has its own task, network or metrics, all phases must be equal to share a preparation.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._kept: OrderedDict[str, tuple[RunPlan, FlatModel]] = OrderedDict()

    def checked(self, scenario: Scenario) -> tuple[RunPlan, FlatModel]:
        """Checks a scenario; may return the plan of another one with the same data and network.

        Raises:
            RayflError: The scenario is wrong.
        """
        scenario = resolve(scenario)
        alike = not any(phase.task or phase.model or phase.metrics is not None for phase in scenario.phases)
        tables = scenario.model_dump(mode="json", exclude={*CHANGES_NO_RESULT, "start", "callbacks"})
        key = json.dumps({**tables, "phases": "any" if alike else tables["phases"]}, sort_keys=True)
        if key not in self._kept:
            self._kept[key] = self._prepared.plan(scenario)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[key]
        self._kept.move_to_end(key)
        run_plan, model = self._kept[key]
        if not alike:
            return run_plan, model
        store, phases = run_plan.result.store, len(scenario.phases)
        plans = check_scenario(scenario)
        for phase in scenario.phases:
            check_cohort(phase, f"phases.{phase.name}", store.num_clients)
        plans = with_traces(plans, [model] * phases, [run_plan.result] * phases)
        check_rounds(scenario, plans)
        check_requirements(scenario, plans, [model.module] * phases, [run_plan.result] * phases)
        return run_plan, model
