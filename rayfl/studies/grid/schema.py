"""A grid: one scenario under every combination of rows, columns, seeds and tasks, like a table in a paper."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, field_validator, model_validator

from rayfl.config.loader import Overrides, absolute, load_scenario, override_pairs, read_toml
from rayfl.config.overrides import table_overrides
from rayfl.config.registry import nearest
from rayfl.config.scenario import LONGEST_NAME, LONGEST_TITLE, Scenario, fitting_a_folder
from rayfl.config.scenario_files import GRID, find
from rayfl.config.section import Section
from rayfl.config.user_modules import add_own_folder, make_importable
from rayfl.config.validation import explain
from rayfl.errors import ScenarioError
from rayfl.passwords import check_no_passwords
from rayfl.runs.archive import GridPlace
from rayfl.studies.grid.grid_analysis import GridAnalysis
from rayfl.studies.grid.place import folder_name, with_place
from rayfl.studies.grid.start_overrides import of_column, split_starts, with_starts

Metric = Literal["best", "best_round", "last", "mean_last_5"]
"""What represents a run: its score in the best evaluated round, that round, its score in the last, or the mean of the
last five."""

Published = float | tuple[float, float]
"""A published number, or its mean and standard deviation."""

Labelled = Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
"""Overrides of the scenario by label, in the form of [quick] tables."""


class Grid(Section):
    """The runs behind a table.

    Relative paths in overrides are relative to the grid's file.

    Attributes:
        name: Name of the folder that holds the grid's runs. By default the file's stem without `.grid`.
        title: Heading of the table. Default: empty.
        scenario: The scenario of all cells: a name, or a path relative to the grid's file.
        seeds: Every cell runs once with each of these seeds. If a cell starts from a scenario, that scenario runs with
            the same seed. Default: [0].
        tasks: Number of tasks; every cell also runs once for each. Task k, from 0, has `data.seed = k`, so all rows
            share the same tasks and splits. By default the data's seed is that of the scenario.
        metrics: What is shown of the headline metric, one table for each: its `best`, the first round that reached it
            (`best_round`), its `last` value, or `mean_last_5`. Default: `best`, or none if there are `figures`.
        figures: Columns of metrics.jsonl to show. Their values in the last evaluated round appear side by side, in one
            table for each column of the grid. Default: none.
        reference: The row that the others' figures are compared with, run by run. Needs `figures`. By default no
            differences are computed.
        overrides: Overrides of all cells; those of the row are applied after them, then those of the column. Default:
            none.
        quick: Overrides of all cells with --quick, applied after all others. Default: none.
        rows: The rows: overrides by label.
        columns: The columns: overrides by label. `start.overrides` are added to those of the row's start.
        published: Published values in the units of the tables, by metric or figure, row and column:
            `published.best.FedAvg."β = 0.1" = 81.69`, or mean and deviation, `[81.69, 0.52]`. Default: none.
        skip: Cells that are listed but not run: "row/column", with * for any. Default: none.
        analyses: Analyses of finished runs, as of `rayfl analyse`. Default: none.
        note: A note below the tables, about what readers need to know about the published numbers. Default: empty.
        module_folders: As in a scenario, for modules that rows and columns name. Default: none.
    """

    name: str = "grid"
    title: Annotated[str, Field(max_length=LONGEST_TITLE // 4)] = ""
    scenario: str
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = (0,)
    tasks: PositiveInt | None = None
    metrics: tuple[Metric, ...] = ("best",)
    figures: tuple[str, ...] = ()
    reference: str | None = None
    overrides: dict[str, Any] = Field(default_factory=dict)
    quick: dict[str, Any] = Field(default_factory=dict)
    rows: Labelled
    columns: Labelled
    published: dict[str, dict[str, dict[str, Published]]] = Field(default_factory=dict)
    skip: tuple[str, ...] = ()
    analyses: tuple[GridAnalysis, ...] = ()
    note: str = ""
    module_folders: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _figures_alone(cls, tables: Any) -> Any:
        if isinstance(tables, Mapping) and tables.get("figures"):
            return {"metrics": [], **tables}
        return tables

    @field_validator("name")
    @classmethod
    def _name_fits_a_folder(cls, name: str) -> str:
        return fitting_a_folder(name)

    @field_validator("rows", "columns")
    @classmethod
    def _labels_fit_folders(cls, labelled: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        folders: dict[str, str] = {}
        for label in labelled:
            folder = folder_name(label)
            if len(folder.encode()) > LONGEST_NAME:
                raise ValueError(
                    f"'{label[:40]}…' is not a valid label: at most {LONGEST_NAME} bytes as a folder's name"
                )
            if not folder or "/" in label:
                raise ValueError(f"'{label}' is not a valid label: it needs a letter or a digit, and no slash")
            if folder in folders:
                raise ValueError(f"'{folders[folder]}' and '{label}' would share the folder '{folder}'")
            folders[folder] = label
        return labelled

    @field_validator("seeds", "metrics", "figures")
    @classmethod
    def _without_duplicates(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) != len(values):
            raise ValueError("must not contain duplicates")
        return values

    @model_validator(mode="after")
    def _names_its_own_cells(self) -> Grid:
        if not self.metrics and not self.figures:
            raise ValueError("metrics: give at least one, or figures")
        if self.reference is not None:
            _check_label(self.reference, self.rows, "reference", "row")
            if not self.figures:
                raise ValueError("reference: has no effect without figures; leave it out")
        if both := [name for name in self.figures if name in get_args(Metric)]:
            raise ValueError(f"figures: '{both[0]}' is a metric, not a column of metrics.jsonl; list it in `metrics`")
        shown = [*self.metrics, *self.figures]
        for metric, rows in self.published.items():
            if metric not in shown:
                kinds = "metrics and figures" if self.figures else "metrics"
                raise ValueError(f"published.{metric}: '{metric}' is not among {kinds}: {', '.join(shown)}")
            for row, columns in rows.items():
                _check_label(row, self.rows, f"published.{metric}", "row")
                for column in columns:
                    _check_label(column, self.columns, f"published.{metric}.{row}", "column")
        self.choose(self.skip, "skip")
        stems = [folder_name(analysis.heading) for analysis in self.analyses]
        for analysis, stem in zip(self.analyses, stems, strict=True):
            where = f"analyses.{analysis.heading}"
            if not stem or stems.count(stem) > 1:
                raise ValueError(f"{where}: another analysis has the same name of files; give each its `label`")
            if unknown := set(analysis.seeds or ()) - set(self.seeds):
                raise ValueError(
                    f"{where}.seeds: {min(unknown)} is not among the seeds of the grid, {list(self.seeds)}"
                )
            if not self.analysed(analysis):
                raise ValueError(f"{where}.only: all these cells are in skip; name others")
            analysis.options()
        return self

    def analysed(self, analysis: GridAnalysis) -> list[GridPlace]:
        """The places of the runs of an analysis, in order; with tasks, those of the first."""
        labels = self.choose(analysis.only, f"analyses.{analysis.heading}.only")
        seeds = analysis.seeds or self.seeds[:1]
        return [
            place
            for place in self.places
            if (place.row, place.column) in labels and place.seed in seeds and not place.task
        ]

    def choose(self, patterns: Iterable[str], where: str) -> set[tuple[str, str]]:
        """The (row, column) pairs that match any of the patterns: "row/column", with * for any.

        Raises:
            ValueError: A pattern is not a pair, or names an unknown row or column; the message begins with `where`.
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

    @property
    def heading(self) -> str:
        """Its title, or else its name."""
        return self.title or self.name

    @property
    def places(self) -> list[GridPlace]:
        """The places of all runs, in order: every row, column, seed and task that is not skipped."""
        skipped = self.choose(self.skip, "skip")
        tasks: Iterable[int | None] = (None,) if self.tasks is None else range(self.tasks)
        return [
            GridPlace(self.heading, row, column, seed, task)
            for row in self.rows
            for column in self.columns
            if (row, column) not in skipped
            for seed in self.seeds
            for task in tasks
        ]

    def scenarios(
        self, overrides: Overrides = (), quick: bool = False, only: Collection[tuple[str, str]] | None = None
    ) -> dict[GridPlace, Scenario]:
        """The scenario of every place, in order.

        Args:
            overrides: Overrides of all cells, applied after the grid's own and before those of rows and columns, which
                are what the grid compares. Those of `start.overrides` apply to the cells that start from a scenario,
                again before those of the row and column.
            quick: Whether to apply the scenario's [quick] before all of them, and the grid's own after; scenarios that
                cells start from then run in their quick form as well.
            only: The row and column of the cells; by default all.

        Raises:
            ScenarioError: Names the cell.
        """
        of_starts, common = split_starts([*table_overrides(self.overrides), *override_pairs(overrides)])
        late_starts, last = split_starts(table_overrides(self.quick) if quick else ())
        loaded: dict[tuple[str, str], Scenario] = {}
        scenarios = {}
        for place in self.places:
            row, column = place.row, place.column
            if only is not None and (row, column) not in only:
                continue
            if (row, column) not in loaded:
                starts_of_column, in_column = of_column(self.columns[column])
                own = [*table_overrides(self.rows[row]), *in_column]
                try:
                    self._check_keys([*common, *own, *last])
                    cell = load_scenario(Path(self.scenario), [*common, *own, *last], quick)
                    late = starts_of_column | late_starts
                    loaded[row, column] = with_starts(self._with_modules(cell), of_starts, late, quick)
                except ScenarioError as error:
                    raise ScenarioError(f"grid '{self.name}', {row} / {column}: {error}") from None
            scenarios[place] = with_place(loaded[row, column], place)
        started = {column for (_, column), cell in loaded.items() if cell.start and cell.start.scenario}
        if (of_starts or late_starts) and not started:
            raise ScenarioError(f"grid '{self.name}': start.overrides: no cell starts from a scenario; leave it out")
        for column in {column for _, column in loaded} - started:
            if of_column(self.columns[column])[0]:
                where = f"grid '{self.name}': columns.{column}.start.overrides"
                raise ScenarioError(f"{where}: no cell of the column starts from a scenario; leave it out")
        return scenarios

    def kinds_of_data(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """For each cell, skipped ones too, what its row and its column say of the data and the start that it needs.

        Cells of which they say the same need the same data.
        """
        of_rows = {row: repr(_about_data(table_overrides(self.rows[row]))) for row in self.rows}
        of_columns = {column: repr(_about_data(table_overrides(self.columns[column]))) for column in self.columns}
        return {(row, column): (of_rows[row], of_columns[column]) for row in self.rows for column in self.columns}

    def _with_modules(self, cell: Scenario) -> Scenario:
        """The cell, with the folders of the grid's modules added to its own."""
        folders = tuple(dict.fromkeys([*cell.module_folders, *self.module_folders]))
        make_importable(folders, cell.model_dump(mode="json"))
        return cell.model_copy(update={"module_folders": folders})

    def _check_keys(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Checks that no override sets a key that the grid sets itself."""
        keys = {key for key, _ in pairs}
        if "seed" in keys:
            raise ScenarioError("seed: a grid uses `seeds` instead")
        if self.tasks is not None and "data.seed" in keys:
            raise ScenarioError("data.seed: the grid's `tasks` set it; leave it out")


def load_grid(grid: str | Path | Mapping[str, Any]) -> Grid:
    """Loads a grid from a name, a path to a `.toml` file, or tables; its scenario becomes the path of a file.

    Raises:
        ScenarioError: The grid does not exist, cannot be read, or has a wrong key.
    """
    if isinstance(grid, Mapping):
        folder, read, name = Path.cwd(), dict(grid), "grid"
    else:
        path = find(grid, kind="grid")
        folder, read, name = path.parent, read_toml(path), path.stem.removesuffix(GRID)
    tables = _with_absolute_paths(read, folder)
    add_own_folder(tables, folder)
    tables.setdefault("name", name)
    check_no_passwords(tables)
    try:
        loaded = Grid.model_validate(tables)
    except ValidationError as error:
        raise ScenarioError(f"grid '{tables['name']}':\n{explain(error, Grid, tables)}") from None
    try:
        return loaded.model_copy(update={"scenario": str(find(loaded.scenario, folder))})
    except ScenarioError as error:
        raise ScenarioError(f"grid '{loaded.name}':\nscenario: {error}") from None


def _with_absolute_paths(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The grid's tables with absolute paths in all overrides."""
    updated = dict(tables)
    for key in ("overrides", "quick"):
        if isinstance(table := tables.get(key), dict):
            updated[key] = absolute(table, folder)
    for key in ("rows", "columns"):
        if isinstance(labelled := tables.get(key), dict):
            updated[key] = {
                label: absolute(table, folder) if isinstance(table, dict) else table
                for label, table in labelled.items()
            }
    if "module_folders" in tables:
        updated |= absolute({"module_folders": tables["module_folders"]}, folder)
    return updated


def _about_data(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The overrides that name data, a start, or the data or start of a start."""
    found: list[tuple[str, Any]] = []
    for key, value in pairs:
        if key == "start.overrides" and isinstance(value, Mapping):
            found.append((key, _about_data(table_overrides(value))))
        elif re.fullmatch(r"(start\.overrides\.)*(data(\.name|\.source)?|start(\.(scenario|file|weights|run))?)", key):
            found.append((key, value))
    return found


def _check_label(label: str, known: Mapping[str, Any], where: str, kind: str) -> None:
    if label not in known:
        raise ValueError(f"{where}: there is no {kind} '{label}'; {nearest(label, known)}")
