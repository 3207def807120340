"""The page of a grid: its tables, read from table.md, its curves and runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rayfl import __version__
from rayfl.console import TextTable
from rayfl.data.sources.stand_in import GENERATED_DATA
from rayfl.errors import ScenarioError
from rayfl.files import reading
from rayfl.runs.archive import RunArchive
from rayfl.runs.figures.quantities import default_metric
from rayfl.runs.figures.recorded_run import DataNote
from rayfl.runs.figures.style import data_text
from rayfl.runs.folder import SCENARIO_FILE
from rayfl.studies.figures.groups import Recorded, read
from rayfl.studies.figures.page.sections import (
    REPORT_FILE,
    Link,
    Page,
    PageSection,
    curves,
    environment_section,
    privacy_section,
    split_texts,
    statistics_over_clients,
    statistics_table,
)
from rayfl.studies.grid.archive import TABLE_FILE, GridArchive
from rayfl.studies.statistics import repetitions
from rayfl.studies.tables import TablePage
from rayfl.wording import duration

LISTED = ("row", "column", "seed", "task", "status", "best", "last", "rounds", "seconds", "reason")
"""Columns of the list of runs."""


def grid_page(folder: Path, beside: Path) -> Page:
    """Reads a grid's folder.

    Args:
        folder: The grid's folder.
        beside: The folder that the page will be in; its links begin there.

    Raises:
        DataError, ResourceError: Records are damaged.
    """
    archive = GridArchive(folder)
    runs = archive.table
    with reading(folder / TABLE_FILE, "as the table of a grid"):
        states = _states(archive)
        overall = _status(states)
    recorded = _recorded(archive, states)
    sections = [_results(archive), _curves(recorded), _split(recorded), _fairness(recorded), _privacy(recorded, folder)]
    seeds = [row["seed"] for row in runs] or [run.seed for run in (recorded.runs if recorded else [])]
    sections.append(environment_section([run.environment for run in recorded.runs] if recorded else [], seeds))
    sections += [_scenario(recorded, folder), _list(states, beside)]
    notes = [DataNote(row["data"], row["data_source"] or "") for row in runs if row.get("data")]
    notes = notes or (recorded.data if recorded else [])
    data = data_text(notes) or "not recorded, as no run has finished"
    return Page(archive.title, *overall, data, sections, __version__)


def _states(archive: GridArchive) -> list[Mapping[str, Any]]:
    """Every run that the table lists, and those whose folders say that they are under way or were interrupted.

    The folder of a run, where it is kept, is its `folder`.
    """
    states: list[Mapping[str, Any]] = [{**row, "folder": archive.run_of(row).path} for row in archive.table]
    for run in archive.runs:
        run.check_format()
        status = run.status or {"status": "without status"}
        if archive.table and status["status"] in ("finished", "failed"):
            continue  # the table lists it
        place = str(run.path.relative_to(archive.path))
        states.append({"row": place, "status": status["status"], "reason": status.get("reason"), "folder": run.path})
    return states


def _status(states: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    counts: dict[str, int] = {}
    for state in states:
        counts[state["status"]] = counts.get(state["status"], 0) + 1
    counted = ", ".join(f"{count} {status}" for status, count in counts.items())
    return ("finished" if set(counts) == {"finished"} else "incomplete"), f"{counted} of {len(states)} recorded runs"


def _recorded(archive: GridArchive, states: Sequence[Mapping[str, Any]]) -> Recorded | None:
    """The rounds of finished runs; None where none has finished, or only the table was kept."""
    has_rounds = archive.has_rounds or archive.runs
    return read(archive.path) if has_rounds and any(state["status"] == "finished" for state in states) else None


def _results(archive: GridArchive) -> PageSection:
    if not archive.page:
        return PageSection(
            "Results", ["The grid's tables have not been made: rayfl grid GRID --table-only makes them."]
        )
    page = TablePage.from_markdown(archive.page)
    # the line on the data says so already
    points = [note for note in page.notes if not note.startswith(GENERATED_DATA)]
    return PageSection("Results", tables=page.tables, points=points)


def _curves(recorded: Recorded | None) -> PageSection:
    title = "Learning curves"
    if recorded is None:
        return PageSection(title, ["There are no curves: the rounds of finished runs are not in this folder."])
    try:
        caption = "The result by round" + (", a panel for every column" if len(recorded.panels) > 1 else "")
        picture = curves(recorded, [default_metric(run.headline for run in recorded.runs)], caption)
    except ScenarioError as error:  # too many lines, or columns with different metrics
        return PageSection(title, [f"Not drawn: {str(error).partition(';')[0]}. Draw a selection with rayfl plot."])
    return PageSection(title, pictures=[picture])


def _split(recorded: Recorded | None) -> PageSection:
    known = [run for run in recorded.runs if run.scenario] if recorded else []
    title = "Split among clients"
    if not known:
        return PageSection(title, ["Not recorded in this folder."])
    splits: dict[str, str] = {}
    for run in known:
        splits.setdefault(run.column, " ".join(split_texts(run.scenario, run.environment)))
    return PageSection(
        title, tables=[TextTable("Of one run of each column", ["", ""], [[*item] for item in splits.items()])]
    )


def _fairness(recorded: Recorded | None) -> PageSection:
    columns = statistics_over_clients(recorded) if recorded else []
    if recorded is None or not columns:
        return PageSection(
            "Fairness over clients", ["Not recorded for all runs; evaluation.over_clients adds statistics."]
        )
    caption = "After the last evaluated round"
    by_group = [repetitions({run.key: run for run in group.runs}) for group in recorded.groups]
    if max(map(len, by_group)) > 1:
        over = "seeds" if recorded.runs[0].task is None else "tasks, each averaged over its seeds"
        caption += f"; mean ± standard deviation over {over}"
    return PageSection("Fairness over clients", tables=[statistics_table(recorded, columns, caption)])


def _privacy(recorded: Recorded | None, folder: Path) -> PageSection:
    """The statement of the first run that has one, and the epsilon of all."""
    runs = [RunArchive(Path(run.where)) for run in recorded.runs] if recorded else []
    run = next((run for run in runs if run.privacy is not None), None)
    if recorded is None or run is None:
        return PageSection("Privacy", ["No run in this folder states a privacy guarantee."])
    section = privacy_section(run)
    tables = list(section.tables)
    for column in ("epsilon", "client_epsilon"):
        private = Recorded(
            tuple(group for group in recorded.groups if all(column in run.columns for run in group.runs))
        )
        if private.groups:
            tables.insert(0, statistics_table(private, [column], "ε after the last evaluated round"))
    texts = [f"This is the statement of one run, {_within(run.path, folder)}.", *section.texts]
    return PageSection(section.title, texts, section.pictures, tables, section.points)


def _scenario(recorded: Recorded | None, folder: Path) -> PageSection:
    paths = [Path(run.where) / SCENARIO_FILE for run in recorded.runs] if recorded else []
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return PageSection("Scenario", ["The scenarios of the runs are not in this folder."])
    with reading(path, "as text"):
        text = path.read_text(encoding="utf-8")
    return PageSection(
        "Scenario",
        [f"This is the scenario of one run, {_within(path.parent, folder)}."],
        code=text,
    )


def _within(path: Path, folder: Path) -> str:
    """The folder of a run, as seen from the grid's folder."""
    return path.relative_to(folder).as_posix()


def _list(states: Sequence[Mapping[str, Any]], beside: Path) -> PageSection:
    names = [name for name in LISTED if any(state.get(name) is not None for state in states)]
    rows = [[_linked(state, beside), *(_cell(name, state.get(name)) for name in names[1:])] for state in states]
    return PageSection("Runs", tables=[TextTable("", names, rows)])


def _linked(state: Mapping[str, Any], beside: Path) -> str:
    """The row of a run, with a link to its page, or to its folder until it has one."""
    run: Path = state["folder"]
    if not run.is_dir():
        return str(state["row"])
    page = run / REPORT_FILE
    return Link(str(state["row"]), quote(os.path.relpath(page if page.is_file() else run, beside)))


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if name == "seconds" and isinstance(value, int | float):
        return duration(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
