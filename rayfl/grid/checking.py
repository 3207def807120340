"""Checks what of a grid's cells needs data and networks, before the first of them starts."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from rayfl.config.loading import load_scenario
from rayfl.engine.job import Job
from rayfl.errors import RayflError
from rayfl.grid.cells import Cell
from rayfl.models.flat import FlatModel
from rayfl.preparation import prepare
from rayfl.start.starting import check_start

KEPT = 4
"""Scenarios that stay prepared: a row's start serves all its columns."""


def check_cells(cells: Iterable[Cell], data_dir: Path) -> None:
    """Prepares the first cell of every row and column, and the scenarios that it starts from, as a run would.

    Cells that differ in seed and task alone are alike in everything that is checked but what is drawn at random.

    Args:
        cells: What is to be run.
        data_dir: Where real data lies.

    Raises:
        RayflError: What the run of a cell would have raised before its first round; says which cell.
    """

    @lru_cache(maxsize=KEPT)
    def prepared(toml: str) -> tuple[Job, FlatModel]:
        return prepare(load_scenario(tomllib.loads(toml)), data_dir)

    first: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first.setdefault((cell.row, cell.column), cell)
    for cell in first.values():
        try:
            job, model = prepare(cell.scenario, data_dir)
            if job.scenario.start:
                check_start(job.scenario.start, model, lambda start: prepared(start.to_toml()))
        except RayflError as error:
            raise type(error)(f"{cell}: {error}") from error
