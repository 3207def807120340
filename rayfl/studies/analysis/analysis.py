"""The base class of analyses: options, units of work, and a picture of the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from matplotlib.figure import Figure
from pydantic import BeforeValidator, PositiveInt

from rayfl.config.component import Choice, Component
from rayfl.config.registry import Registry
from rayfl.studies.analysis.opened_run import OpenedRun
from rayfl.studies.analysis.run_folder import RunFolder

analyses = Registry(
    "analysis",
    {
        "gains": "rayfl.studies.analysis.averaging:Gains",
        "convex": "rayfl.studies.analysis.convex:Convex",
        "variance": "rayfl.studies.analysis.averaging:Variance",
        "landscape": "rayfl.studies.analysis.landscape:Landscape",
        "probe": "rayfl.studies.analysis.probe:Probe",
        "ntk": "rayfl.studies.analysis.ntk:NTK",
        "heterogeneity": "rayfl.studies.analysis.heterogeneity:Heterogeneity",
        "curve": "rayfl.studies.analysis.curve:Curve",
    },
)

Row = dict[str, Any]
Open = Callable[[int], OpenedRun]
"""Opens a run by its position on the command line."""


def listed(value: Any) -> Any:
    """A tuple, also of a single value: `rounds=10` means `rounds=[10]`."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


Rounds = Annotated[tuple[PositiveInt, ...], BeforeValidator(listed)]


class WorkUnit(NamedTuple):
    """A part of an analysis that is computed at once, in any worker process.

    Attributes:
        run: Position of its run on the command line.
        name: Unique name within the analysis, used in a file name.
        at: Its subject within the run: a round, or a panel and its row.
    """

    run: int
    name: str
    at: tuple[int, ...] = ()


class Analysis(Component, ABC):
    """An analysis of finished runs; its fields are its options, `key=value` on the command line.

    The result of a unit depends only on the runs and the options, so any worker process may compute it, in any order.

    Attributes:
        most_runs: Largest number of runs at once; None for any number.
        title: Heading of the picture.
    """

    most_runs: ClassVar[int | None] = None
    title: ClassVar[str]

    @abstractmethod
    def units(self, runs: Sequence[RunFolder]) -> list[WorkUnit]:
        """Makes all checks that need no data, and divides the work.

        Raises:
            ScenarioError: The options do not fit the runs, or a run does not support this analysis.
            DataError: A run lacks required files.
        """

    @abstractmethod
    def cost(self, runs: Sequence[RunFolder], units: Sequence[WorkUnit]) -> str:
        """Describes the cost of the units, to be printed before they begin."""

    @abstractmethod
    def compute(self, unit: WorkUnit, open: Open) -> list[Row]:
        """Computes a unit; the rows of all units have the same columns."""

    @abstractmethod
    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        """The picture of all rows, in the order of the units."""

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        """Lines to print at the end."""
        return []


def by_run(rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[list[Mapping[str, Any]]]:
    """The rows of each run, in order."""
    return [[row for row in rows if row["run"] == number] for number in range(len(runs))]


ANALYSES = Choice(analyses, Analysis)
