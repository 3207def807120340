"""The analyses of a grid: checked before its runs begin, and carried out once they have finished."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from rayfl.console import print_line, print_warning
from rayfl.errors import RayflError, ScenarioError
from rayfl.runs.options import RunOptions
from rayfl.studies.analysis.analysis import ANALYSES, Analysis
from rayfl.studies.analysis.execution import FOLDER, AnalysisSettings, has_finished, run_analysis
from rayfl.studies.analysis.planned_run import PlannedRun, check_planned
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.studies.grid.cells import Cell
from rayfl.studies.grid.place import folder_name
from rayfl.studies.grid.schema import Grid

NAMED = 3
"""Runs that a message names."""


class Analysed(NamedTuple):
    """An analysis that was carried out.

    Attributes:
        label: Its label.
        picture: Its picture, relative to the folder of the grid; empty if it failed.
        error: The reason of a failure, or None.
    """

    label: str
    picture: str = ""
    error: str | None = None


@dataclass(frozen=True)
class CellAnalysis:
    """An analysis of runs of a grid.

    Attributes:
        label: Its label.
        analysis: The analysis with its options.
        cells: The cells whose runs it analyses, in the order of the grid.
    """

    label: str
    analysis: Analysis
    cells: Sequence[Cell]

    @property
    def stem(self) -> str:
        """Name of its files, without suffix."""
        return folder_name(self.label)

    def check(self) -> None:
        """Makes the checks that need no finished run.

        Raises:
            ScenarioError: The options do not fit the runs, or the runs will not support it.
        """
        self.analysis.check_number(len(self.cells))
        check_planned(self.analysis, [PlannedRun(cell.folder, cell.scenario) for cell in self.cells])


def analyses_of(grid: Grid, cells: Sequence[Cell], quick: bool) -> list[CellAnalysis]:
    """The analyses of a grid.

    Raises:
        ScenarioError: One is unknown, or has a wrong option.
    """
    by_place = {cell.place: cell for cell in cells}
    found = []
    for one in grid.analyses:
        where = f"grid '{grid.name}', analyses.{one.heading}"
        forms = [ANALYSES.build(one.options(form), where) for form in (False, True)]
        analysis: Analysis = forms[quick]
        found.append(CellAnalysis(one.heading, analysis, [by_place[place] for place in grid.analysed(one)]))
    return found


def checked(analyses: Sequence[CellAnalysis], grid: str, console: Console, changed: bool) -> list[CellAnalysis]:
    """The analyses that the runs to come will support.

    Args:
        analyses: All analyses of the grid.
        grid: Its name.
        console: Where to say which analysis is left out.
        changed: Whether the command line changes the runs, by which an analysis may lose what it requires.

    Raises:
        ScenarioError: The runs of the grid as it is written will not support an analysis.
    """
    supported = []
    for one in analyses:
        try:
            one.check()
        except RayflError as error:
            where = f"analyses.{one.label}: {error}"
            if not changed:
                raise ScenarioError(f"grid '{grid}', {where}") from None
            print_warning(console, f"{where}; left out")
        else:
            supported.append(one)
    return supported


def carry_out(
    analyses: Sequence[CellAnalysis],
    finished: Collection[Cell],
    options: RunOptions,
    folder: Path,
    console: Console,
    draw_only: bool = False,
) -> Iterator[Analysed]:
    """Carries out the analyses whose runs have all finished; says which runs the others lack.

    Args:
        analyses: The analyses.
        finished: Cells whose runs have finished.
        options: How the cells were run.
        folder: The folder of the grid.
        console: Where to print cost, progress and findings.
        draw_only: Only draws again those that are complete.

    Yields:
        How each analysis ended that was not left out.
    """
    assert isinstance(options.data_dir, Path)
    for one in analyses:
        print_line(console, f"\nanalysis {one.label}", style="bold")
        if missing := [str(cell) for cell in one.cells if cell not in finished]:
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            print_line(console, f"left out, since runs have not finished: {', '.join(missing[:NAMED])}{more}")
            continue
        launch = AnalysisSettings(options.backend, options.address, None, options.data_dir, folder, one.stem)
        try:
            runs = [RunFolder.read(cell.folder) for cell in one.cells]
            if draw_only and not has_finished(one.analysis, runs, launch):
                print_line(console, "not computed yet; leave out --table-only to compute it")
                continue
            run_analysis(one.analysis, runs, launch, console)
        except RayflError as error:  # one that fails must not stop the others
            print_line(console, f"failed: {error}", style="red")
            yield Analysed(one.label, error=str(error))
        else:
            yield Analysed(one.label, f"{FOLDER}/{one.stem}.png")
