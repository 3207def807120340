"""Checks that all runs of a grid use the same data, those that are finished and those to come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rayfl.config.scenario import Scenario
from rayfl.errors import DataError
from rayfl.fingerprint.recorded import recorded
from rayfl.grid.cells import Cell
from rayfl.grid.results import FinishedRun
from rayfl.start.chain import with_starts


def check_same_data(runs: Mapping[Cell, FinishedRun]) -> None:
    """Checks that finished runs with the same data settings used the same data.

    Raises:
        DataError: Two of them did not.
    """
    first: dict[str, Cell] = {}
    for cell, run in runs.items():
        if not run.data_digests:
            continue
        data = cell.scenario.data
        # arrays and generated data may depend on all settings
        asked = f"{data.name} {data.source} {data.options}" if run.data_of_files else _asked_for(cell.scenario)
        other = first.setdefault(asked, cell)
        found, before = run.data_found(), runs[other].data_found()
        if found != before:
            raise DataError(
                f"two runs used different data: {other} ({before}) and {cell} ({found}); remove the folder of one, "
                f"'{other.folder}' or '{cell.folder}', to run it again with the data of the other, or choose another "
                "folder with --out"
            )


def check_data_unchanged(finished: Iterable[Cell], left: Iterable[Cell], data_dir: Path) -> None:
    """Loads data that finished runs share with those to come, and compares its digest with the recorded one.

    Loads the data of one seed, also for the scenarios that cells start from.

    Args:
        finished: Finished cells.
        left: Cells to be run.
        data_dir: The folder of real data.

    Raises:
        DataError: The data has changed since, or cannot be loaded any more.
    """
    from rayfl.data.digest import data_digest
    from rayfl.data.folders import cache_folder
    from rayfl.data.loading import load

    chains = [with_starts(cell.scenario) for cell in _of_one_seed(left)]
    wanted = {_asked_for(scenario, seed=False) for chain in chains for scenario in chain}
    for cell in _of_one_seed(finished):
        for scenario, before in zip(with_starts(cell.scenario), recorded(cell.folder).data, strict=False):
            asked = _asked_for(scenario, seed=False)
            if asked not in wanted:
                continue
            wanted.remove(asked)
            now = data_digest(load(scenario.data, scenario.data_seed, data_dir, cache_folder()))
            if now != before:
                raise DataError(
                    f"{cell}: '{cell.folder}' has a run from before the data '{scenario.data.name}' was changed "
                    f"(sha256 {before[:16]}…, now {now[:16]}…); restore the data, choose another folder with --out, or "
                    "remove the folders of all runs from before the change to run them again"
                )


def _of_one_seed(cells: Iterable[Cell]) -> Iterable[Cell]:
    return {(cell.row, cell.column): cell for cell in cells}.values()


def _asked_for(scenario: Scenario, seed: bool = True) -> str:
    """All settings that determine the samples before they are partitioned, with or without the seed."""
    data = scenario.data
    asked = f"{data.name} {data.source} {data.options} {data.clients} {data.classes} {data.owners}"
    return f"{asked} {scenario.data_seed}" if seed else asked
