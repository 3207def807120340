"""A grid: one scenario under every combination of rows, columns and seeds, as a paper's table has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, ValidationError, field_validator, model_validator

from rayfl.config.finding import GRID, find
from rayfl.config.loading import Overrides, load_scenario, override_pairs, read_toml
from rayfl.config.overrides import table_overrides
from rayfl.config.scenario import Scenario
from rayfl.config.section import Section
from rayfl.config.validation import explain
from rayfl.errors import ScenarioError
from rayfl.registry import nearest

Metric = Literal["best", "last", "mean_last_5"]
"""Which test accuracy of a run fills its cell: of the best evaluated round, of the last, the mean of the last five."""

Labelled = Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
"""Overrides of the scenario, by label: tables like those of [quick]."""


class Grid(Section):
    """The runs of a table.

    Attributes:
        name: Of the folder that holds its runs; by default the file's stem without `.grid`.
        title: Stands above the table.
        scenario: A name, or a path relative to the grid's file.
        seeds: Every cell is run once with each.
        metrics: Each makes a table.
        overrides: Of all cells; a row's come after them, then the column's.
        quick: Overrides of all cells, after all others, when --quick is given.
        rows: Overrides by label.
        columns: Overrides by label.
        published: Percent, by metric, row and column: `published.best.FedAvg."β = 0.1" = 81.69`.
        skip: Cells that are listed as not run: "row/column", with * for any.
        note: Stands under the tables: what a reader has to know about the published numbers.
    """

    name: str = "grid"
    title: str = ""
    scenario: str
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = (0,)
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)] = ("best",)
    overrides: dict[str, Any] = Field(default_factory=dict)
    quick: dict[str, Any] = Field(default_factory=dict)
    rows: Labelled
    columns: Labelled
    published: dict[Metric, dict[str, dict[str, float]]] = Field(default_factory=dict)
    skip: tuple[str, ...] = ()
    note: str = ""

    @field_validator("rows", "columns")
    @classmethod
    def _labels_fit_folders(cls, labelled: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        folders: dict[str, str] = {}
        for label in labelled:
            folder = folder_name(label)
            if not folder or "/" in label:
                raise ValueError(f"'{label}' is no label: it needs a letter or a digit, and no slash")
            if folder in folders:
                raise ValueError(f"'{folders[folder]}' and '{label}' would share the folder '{folder}'")
            folders[folder] = label
        return labelled

    @field_validator("seeds", "metrics")
    @classmethod
    def _without_duplicates(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) != len(values):
            raise ValueError("must not hold the same twice")
        return values

    @model_validator(mode="after")
    def _names_its_own_cells(self) -> Grid:
        for metric, rows in self.published.items():
            if metric not in self.metrics:
                raise ValueError(f"published.{metric}: '{metric}' is not among metrics: {', '.join(self.metrics)}")
            for row, columns in rows.items():
                _check_label(row, self.rows, f"published.{metric}", "row")
                for column in columns:
                    _check_label(column, self.columns, f"published.{metric}.{row}", "column")
        self.choose(self.skip, "skip")
        return self

    def choose(self, patterns: Iterable[str], where: str) -> set[tuple[str, str]]:
        """The (row, column) pairs that any of the patterns means: "row/column", with * for any.

        Raises:
            ValueError: a pattern is no pair, or names a row or column that is not there; `where` is named in it.
        """
        chosen: set[tuple[str, str]] = set()
        for pattern in patterns:
            row, slash, column = (part.strip() for part in pattern.partition("/"))
            if not slash:
                raise ValueError(f"{where}: '{pattern}' is not row/column (* stands for any)")
            if row != "*":
                _check_label(row, self.rows, where, "row")
            if column != "*":
                _check_label(column, self.columns, where, "column")
            chosen |= {(r, c) for r in self.rows for c in self.columns if row in ("*", r) and column in ("*", c)}
        return chosen

    def scenarios(self, overrides: Overrides = (), quick: bool = False) -> dict[tuple[str, str, int], Scenario]:
        """The resolved scenario of every (row, column, seed) that is not skipped, in order.

        overrides: of all cells, after the grid's own; rows and columns, which are what is compared, come last.
        quick: apply the scenario's [quick] before all of them, and the grid's own after.

        Raises:
            ScenarioError: names the cell.
        """
        common = [*table_overrides(self.overrides), *override_pairs(overrides)]
        last = list(table_overrides(self.quick)) if quick else []
        skipped = self.choose(self.skip, "skip")
        found = {}
        for row, of_row in self.rows.items():
            for column, of_column in self.columns.items():
                if (row, column) in skipped:
                    continue
                pairs = [*common, *table_overrides(of_row), *table_overrides(of_column), *last]
                if any(key == "seed" for key, _ in pairs):
                    raise ScenarioError(f"grid '{self.name}', {row} / {column}: seed: a grid has `seeds` instead")
                for seed in self.seeds:
                    try:
                        cell = load_scenario(Path(self.scenario), [*pairs, ("seed", seed)], quick)
                    except ScenarioError as error:
                        raise ScenarioError(f"grid '{self.name}', {row} / {column}: {error}") from None
                    found[row, column, seed] = cell
        return found


def load_grid(grid: str | Path) -> Grid:
    """The grid of a name, or of a path to a `.toml` file; its scenario is the path of a file.

    Raises:
        ScenarioError: there is no such grid, it cannot be read, or a key is wrong.
    """
    path = find(grid, kind="grid")
    tables = read_toml(path)
    tables.setdefault("name", path.stem.removesuffix(GRID))
    try:
        loaded = Grid.model_validate(tables)
    except ValidationError as error:
        raise ScenarioError(f"grid '{tables['name']}':\n{explain(error, Grid, tables)}") from None
    try:
        return loaded.model_copy(update={"scenario": str(find(loaded.scenario, path.parent))})
    except ScenarioError as error:
        raise ScenarioError(f"grid '{loaded.name}':\nscenario: {error}") from None


def folder_name(label: str) -> str:
    """A label as a folder's name: letters and digits of any script, and . + - = as they are, _ for all else."""
    return re.sub(r"[^\w.+=-]+", "_", label).strip("._")


def _check_label(label: str, known: Mapping[str, Any], where: str, kind: str) -> None:
    if label not in known:
        raise ValueError(f"{where}: there is no {kind} '{label}'; {nearest(label, known)}")
