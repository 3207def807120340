"""Runs that are drawn as one line: those of one scenario, or of one cell of a grid, with different seeds and tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from rayfl.config.registry import nearest
from rayfl.config.scenario import CHANGES_NO_RESULT
from rayfl.errors import DataError, ScenarioError
from rayfl.remote_folder import local
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.recorded_run import DataNote, RecordedRun, read_run
from rayfl.studies.figures.recorded_grid import is_grid, read_grid
from rayfl.studies.grid.differences import leaves

_NO_DIFFERENCE = (*CHANGES_NO_RESULT, "seed", "data.seed", "start.overrides.seed")


class Directory(Protocol):
    """A result of `rayfl.run` or `rayfl.grid`."""

    @property
    def directory(self) -> Path:
        """The folder with its records."""


Panels = Literal["columns", "rows"]
"""Which parts of a grid get their own panel or table: its columns, in which rows are compared, or its rows."""

Source = str | Path | Directory
"""The folder of a run or a grid, or what `rayfl.run` or `rayfl.grid` returned."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in seed and task.

    Attributes:
        label: Its name, in words.
        panel: Label of its column in a grid; empty outside grids.
        runs: One for each seed, and each task where there are tasks; sorted.
    """

    label: str
    panel: str
    runs: tuple[RecordedRun, ...]

    @property
    def name(self) -> str:
        """Its label, with that of its column."""
        return f"{self.label} / {self.panel}" if self.panel else self.label


@dataclass(frozen=True, eq=False)
class Recorded:
    """The records of several runs and grids.

    Attributes:
        groups: In the order in which they were given, those of a grid in the order of its rows and columns.
        notes: Remarks on runs that are left out.
    """

    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> list[str]:
        """The labels of the groups, each once, in order."""
        return list(dict.fromkeys(group.label for group in self.groups))

    @property
    def panels(self) -> list[str]:
        """The labels of the columns, each once, in order."""
        return list(dict.fromkeys(group.panel for group in self.groups))

    @property
    def runs(self) -> list[RecordedRun]:
        """All runs."""
        return [run for group in self.groups for run in group.runs]

    @property
    def data(self) -> list[DataNote]:
        """The data of the runs, each once."""
        return list(dict.fromkeys(run.data for run in self.runs))

    def in_panel(self, panel: str) -> list[Group]:
        """The groups of a column."""
        return [group for group in self.groups if group.panel == panel]

    def relabelled(self, labels: Sequence[str]) -> Recorded:
        """The same groups under other labels, in the order of `labels`.

        Raises:
            ScenarioError: There are more or fewer labels than groups, or two are equal.
        """
        before = self.labels
        if len(labels) != len(before) or len(set(labels)) != len(labels):
            known = ", ".join(f"'{label}'" for label in before)
            raise ScenarioError(f"labels: give {len(before)} different labels to replace {known} (got {len(labels)})")
        names = dict(zip(before, labels, strict=True))
        return replace(self, groups=tuple(replace(group, label=names[group.label]) for group in self.groups))

    def chosen(self, labels: Sequence[str]) -> Recorded:
        """The groups with these labels, in their order.

        Raises:
            ScenarioError: No group has one of them.
        """
        for label in labels:
            if label not in self.labels:
                raise ScenarioError(f"lines: there is no line '{label}'; {nearest(label, self.labels)}")
        return replace(self, groups=tuple(group for label in labels for group in self.groups if group.label == label))

    def by_rows(self) -> Recorded:
        """Rows and columns exchanged: a panel for each row of the grid, in which its columns are compared.

        Raises:
            ScenarioError: There are no columns.
        """
        if self.panels == [""]:
            raise ScenarioError("panels: 'rows' needs a grid, and these are single runs; leave it out")
        groups = [Group(group.panel or group.label, group.label, group.runs) for group in self.groups]
        order = list(dict.fromkeys(group.label for group in groups))
        return replace(self, groups=tuple(sorted(groups, key=lambda group: order.index(group.label))))


def arranged(
    sources: Iterable[Source], panels: Panels, labels: Sequence[str] = (), lines: Sequence[str] = ()
) -> Recorded:
    """Reads runs and grids, as plots and comparisons show them.

    Args:
        sources: Folders of runs and grids, or what `rayfl.run` and `rayfl.grid` returned.
        panels: Whether `columns` or `rows` of a grid are panels.
        labels: Other labels for the groups, in their order.
        lines: The labels to keep, in this order; by default all.

    Raises:
        DataError, ResourceError: See `read`.
        ScenarioError: An argument does not fit the groups.
    """
    if panels not in get_args(Panels):
        raise ScenarioError(f"panels: must be 'columns' or 'rows' (got '{panels}')")
    recorded = read(sources)
    if panels == "rows":
        recorded = recorded.by_rows()
    if lines:
        recorded = recorded.chosen([lines] if isinstance(lines, str) else lines)
    return recorded.relabelled([labels] if isinstance(labels, str) else labels) if labels else recorded


def read(sources: Source | Iterable[Source]) -> Recorded:
    """Reads runs and grids, and groups those that differ only in seed and task.

    Args:
        sources: Folders of runs and grids, or what `rayfl.run` and `rayfl.grid` returned.

    Returns:
        A group for every scenario, which its title names, and every cell of a grid, which its row and column name; if
        their settings, or the sources of their data, differ, several.

    Raises:
        DataError: A folder holds neither a run nor a grid, or nothing that has finished.
        ResourceError: Records are damaged.
        ScenarioError: No source is given, one is a URI, or two runs of a group share their seed and task.
    """
    all_sources: list[Any] = (
        [sources] if isinstance(sources, str | Path) or hasattr(sources, "directory") else list(sources)
    )
    if not all_sources:
        raise ScenarioError("name the folder of a run or a grid")
    runs: dict[str, RecordedRun] = {}
    notes: list[str] = []
    for source in all_sources:
        folder = folder_of(source)
        if RunArchive(folder).has_begun:
            folder_runs = [read_run(folder)]
        elif is_grid(folder):
            grid = read_grid(folder)
            folder_runs = list(grid.runs)
            notes += grid.notes
        else:
            raise neither(folder)
        for run in folder_runs:
            runs.setdefault(str(Path(run.where).absolute()), run)
    return Recorded(tuple(_grouped(list(runs.values()))), tuple(dict.fromkeys(notes)))


def folder_of(source: Source) -> Path:
    """The folder of a source.

    Raises:
        ScenarioError: It is a URI, or something else.
    """
    if isinstance(source, str | Path):
        local(source, "RUN", "and rayfl reads records from the disk of this machine: copy its folder there")
        return Path(source)
    if not hasattr(source, "directory"):
        raise ScenarioError(f"give each folder or result as an argument of its own (got {source!r:.80})")
    return source.directory


def neither(folder: Path) -> DataError:
    """The error for a path with neither a run nor a grid."""
    what = "is not a folder" if folder.exists() else "does not exist"
    if folder.is_dir():
        what = "holds neither a run nor a grid: it has no metrics.jsonl and no table.parquet"
    return DataError(f"'{folder}' {what}; name a folder below runs/")


def _grouped(runs: Sequence[RecordedRun]) -> list[Group]:
    by_key: dict[tuple[str, ...], list[RecordedRun]] = {}
    for run in runs:
        by_key.setdefault((run.grid, run.row, run.column, _identity(run)), []).append(run)
    labels = _labels([members[0] for members in by_key.values()])
    groups = []
    for label, members in zip(labels, by_key.values(), strict=True):
        members.sort(key=lambda run: (run.task or 0, run.seed))
        for one, other in pairwise(members):
            if one.key == other.key:
                raise ScenarioError(
                    f"'{one.where}' and '{other.where}' are runs of '{label}' with the same seed {one.seed}; give one"
                )
        groups.append(Group(label, members[0].column, tuple(members)))
    return groups


def _labels(firsts: Sequence[RecordedRun]) -> list[str]:
    """A label for each group, from its first run: its row or title, and how it differs from others of that name.

    If all groups are runs of one title, the differences alone name them.
    """
    named = dict.fromkeys(run.row for run in firsts)
    grids: dict[tuple[str, str], set[str]] = {}
    for run in firsts:
        grids.setdefault((run.row, run.column), set()).add(run.grid)
    in_several = {row for (row, _), found in grids.items() if len(found) > 1}
    labels = []
    for run in firsts:
        label = f"{run.grid}: {run.row}" if run.grid and run.row in in_several else run.row
        alike = [one for one in firsts if (one.grid, one.row, one.column) == (run.grid, run.row, run.column)]
        if len(alike) > 1:
            text = _distinction([_settings(one) for one in alike])[alike.index(run)]
            label = text if len(named) == 1 and not run.grid else f"{label} ({text})"
        labels.append(label)
    return labels


def _distinction(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Short texts that tell settings apart, no two of which are the same.

    Names of components come first, without their keys: `FedACG, lam = 0.7`. Further settings follow until no other
    scenario has them all, each named by the end of its key path that no other differing key has.
    """
    keys = list(dict.fromkeys(key for table in tables for key in table))
    compared = [_compared(table) for table in tables]
    differing = [key for key in keys if any(one.get(key) != compared[0].get(key) for one in compared)]
    ordered = sorted(differing, key=lambda key: not _names_component(key))

    def said(table: Mapping[str, Any], key: str) -> str:
        value, short = table.get(key), _shortest_end(key, differing)
        if value is None:
            return f"no {key.split('.')[-2].rpartition(':')[2] if key.endswith('.name') else short}"
        return str(value).rpartition(":")[2] if _names_component(key) else f"{short} = {value}"

    texts, whole = [], []
    for table, own in zip(tables, compared, strict=True):
        others = [other for other in compared if other is not own]
        shown = []
        while others:
            apart = {key: sum(other.get(key) != own.get(key) for other in others) for key in ordered}
            named = [key for key in ordered if apart[key] and _names_component(key)]
            key = named[0] if named else max(ordered, key=lambda key: apart[key])
            others = [other for other in others if other.get(key) == own.get(key)]
            shown.append(key)
        texts.append(", ".join(said(table, key) for key in shown))
        whole.append(", ".join(f"{key} = {own.get(key)}" for key in shown))
    return [text if texts.count(text) == 1 else long for text, long in zip(texts, whole, strict=True)]


def _names_component(key: str) -> bool:
    """Whether a key is the name of an algorithm, a network, a data set or the like, which needs no key beside it."""
    parts = key.split(".")
    return parts[-1] in ("algorithm", "model") or (
        parts[-1] == "name" and len(parts) > 1 and parts[-3:-2] != ["phases"]
    )


def _shortest_end(key: str, keys: Sequence[str]) -> str:
    """The end of a key path that no other of `keys` has."""
    parts = key.split(".")
    ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
    return next(end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1)


def _identity(run: RecordedRun) -> str:
    return json.dumps(_compared(_settings(run)), sort_keys=True)


def _settings(run: RecordedRun) -> dict[str, Any]:
    """The settings of a run, with the source that its data had."""
    return settings_of(run.scenario) | {"data.source": run.data.source}


def _compared(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as texts that are equal only for the same values: 1 and 1.0 are, but true and "1" are others."""
    return {key: json.dumps(_whole_as_int(value), sort_keys=True, default=str) for key, value in settings.items()}


def _whole_as_int(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole_as_int(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: _whole_as_int(inner) for key, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def settings_of(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a scenario by key path, without seeds and keys that change no result.

    Phases and callbacks go by their names, callbacks only if no two have the same.
    """
    tables = dict(scenario)
    for key in ("phases", "callbacks"):
        of_key = tables.get(key)
        if isinstance(of_key, list):
            named = {str(one.get("name", number)): one for number, one in enumerate(of_key)}
            tables[key] = named if key == "phases" or len(named) == len(of_key) else of_key
    settings = dict(leaves(tables))
    return {
        key: value
        for key, value in settings.items()
        if key not in _NO_DIFFERENCE and key.partition(".")[0] not in CHANGES_NO_RESULT
    }
