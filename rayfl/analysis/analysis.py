"""What every analysis is: its options, the units of work that it falls into, and the picture of what they found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

from matplotlib.figure import Figure
from pydantic import BeforeValidator, PositiveInt

from rayfl.analysis.opened_run import OpenedRun
from rayfl.analysis.run_folder import RunFolder
from rayfl.component import Component
from rayfl.registry import Registry

analyses = Registry(
    "analysis",
    {
        "gains": "rayfl.analysis.gains:Gains",
        "convex": "rayfl.analysis.convex:Convex",
        "variance": "rayfl.analysis.variance:Variance",
        "landscape": "rayfl.analysis.landscape:Landscape",
        "probe": "rayfl.analysis.probe:Probe",
        "ntk": "rayfl.analysis.ntk:NTK",
        "heterogeneity": "rayfl.analysis.heterogeneity:Heterogeneity",
        "curve": "rayfl.analysis.curve:Curve",
    },
)

Row = dict[str, Any]
Open = Callable[[int], OpenedRun]
"""Prepares a run, by its position on the command line."""


def listed(value: Any) -> Any:
    """A tuple, also of a single value: `rounds=10` means `rounds=[10]`."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


Rounds = Annotated[tuple[PositiveInt, ...], BeforeValidator(listed)]


class Unit(NamedTuple):
    """A part of an analysis that is computed at once, on any host.

    Attributes:
        run: Position of its run among those that are analysed.
        name: Unique in the analysis, and part of a file's name.
        at: What of the run it is about: a round, a panel and its row.
    """

    run: int
    name: str
    at: tuple[int, ...] = ()


class Analysis(Component, ABC):
    """An analysis of finished runs; its fields are its options, `key=value` on the command line.

    What a unit finds depends on the runs and the options alone, so any host may compute it, in any order.

    Attributes:
        most_runs: How many runs it takes at once.
        title: What the picture shows, for its heading.
    """

    most_runs: ClassVar[int | None] = None
    title: ClassVar[str]

    @abstractmethod
    def units(self, runs: Sequence[RunFolder]) -> list[Unit]:
        """Checks what can be checked without data, and divides the work.

        Raises:
            ScenarioError: The options do not fit the runs, or a run cannot be analysed so.
            DataError: A run lacks something.
        """

    @abstractmethod
    def cost(self, runs: Sequence[RunFolder], units: Sequence[Unit]) -> str:
        """In words, what the units take; printed before they begin."""

    @abstractmethod
    def compute(self, unit: Unit, open: Open) -> list[Row]:
        """Computes a unit: rows of the same columns, whichever unit."""

    @abstractmethod
    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        """The picture of all rows, in the order of the units."""

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        """Lines to print at the end."""
        return []


def by_run(rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[list[Mapping[str, Any]]]:
    """The rows of each run, in order."""
    return [[row for row in rows if row["run"] == number] for number in range(len(runs))]
