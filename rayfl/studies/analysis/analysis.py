"""The base class of analyses: options, units of work, and pictures of the results, saved as PNG and PDF."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from pydantic import BeforeValidator, PositiveInt

from rayfl.config.component import Choice, Component
from rayfl.config.registry import Registry
from rayfl.engine.plan.headline import Headline
from rayfl.errors import ScenarioError
from rayfl.runs.figures import phase_marks as switches
from rayfl.runs.figures.notebook import NotebookFigure
from rayfl.runs.figures.quantities import default_metric
from rayfl.runs.figures.style import COLOURS, SCREEN, caption_data, write
from rayfl.studies.analysis.opened_run import OpenedRun
from rayfl.studies.analysis.run_folder import RunFolder

BLUE, ORANGE = COLOURS[:2]
DARK = "#222222"


def new_figure(title: str, runs: Sequence[RunFolder], width: float, height: float) -> Figure:
    """An empty figure with a heading, which names what runs of a grid have in common, and a line on the data below."""
    figure = NotebookFigure(figsize=(width, height), layout="constrained", scale=SCREEN)
    heading = ": ".join([title, *_common_to(runs)])
    figure.suptitle(textwrap.fill(heading, int(8.5 * width)))
    caption_data(figure, *(run.data for run in runs))
    return figure


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes the figure as PNG and PDF, named after `path`; returns both paths."""
    files = [path.with_name(path.name + ending) for ending in (".png", ".pdf")]
    for file in files:
        write(figure, file)
    return files


def tidy(axes: Axes, xlabel: str = "", ylabel: str = "", title: str = "", whole_x: bool = False) -> None:
    """Gives axes their labels."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if title:
        axes.set_title(textwrap.fill(title, 46))
    if whole_x:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def as_share(axes: Axes, headline: Headline, signed: bool = False) -> None:
    """Shows a headline metric in percent if it is a share, and differences in percentage points."""
    if headline.is_share:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol="" if signed else " %"))


def marker(number: int) -> dict[str, Any]:
    """Markers for the points of a line, if there are few enough to distinguish."""
    return {"marker": "o", "markersize": 3.5} if number <= 40 else {}


def names_of(runs: Sequence[RunFolder], seeds: bool = True) -> list[str]:
    """Names of runs in one picture: in which of row, column, seed and task runs of one grid differ.

    Those of other runs are their titles, with the folders of runs that share a title.

    Args:
        runs: The runs.
        seeds: Whether runs of a grid that differ only in seed or task have different names.
    """
    if places := _places_in_one_grid(runs):
        parts = [*zip(*places, strict=True)][: None if seeds else 2]
        if differing := [part for part in parts if len(set(part)) > 1]:
            return [" / ".join(names) for names in zip(*differing, strict=True)]
        return [" / ".join(place[:2]) for place in places]
    titles = [run.title for run in runs]
    return [
        title if titles.count(title) == 1 else f"{title} ({_end(run, [one for one in runs if one.title == title])})"
        for title, run in zip(titles, runs, strict=True)
    ]


def _end(run: RunFolder, alike: Sequence[RunFolder]) -> str:
    """The shortest end of the path of a run that no other one has."""
    parts = run.path.parts
    ends = (parts[-count:] for count in range(1, len(parts) + 1))
    found = next((end for end in ends if sum(one.path.parts[-len(end) :] == end for one in alike) == 1), parts)
    return "/".join(found)


def _common_to(runs: Sequence[RunFolder]) -> list[str]:
    """What several runs of one grid have in common, as one text; none if they are not of one grid."""
    common = [
        part[0].replace(" ", "\N{NO-BREAK SPACE}")
        for part in zip(*_places_in_one_grid(runs), strict=True)
        if len(set(part)) == 1 and part[0]
    ]
    return [", ".join(common)] if common else []


def _places_in_one_grid(runs: Sequence[RunFolder]) -> list[tuple[str, ...]]:
    """Row, column, seed and task of several runs of one grid, each different; otherwise none."""
    places = [place for run in runs if (place := run.place)]
    if len(runs) < 2 or len(set(places)) < len(runs) or len({place.title for place in places}) > 1:
        return []
    return [(one.row, one.column, f"seed {one.seed}", "" if one.task is None else f"task {one.task}") for one in places]


def mark_phases(axes: Axes, run: RunFolder) -> None:
    """Marks the switches of a run's phases between what is drawn, as in its curves."""
    low, high = axes.dataLim.intervalx
    ends = (
        (last + 0.5, f"{plan.phase.name} → {after.phase.name}")
        for (plan, after), last in zip(pairwise(run.plans), run.last_rounds, strict=False)
    )
    if seen := tuple(end for end in ends if low < end[0] < high):
        switches.mark_phases(axes, {"": seen}, {})
        axes.set_title(axes.get_title(), pad=14)


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
        "bounds": "rayfl.studies.analysis.bounds:Bounds",
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
        draws_headline: Whether it draws the headline metric of all runs on one axis.
        title: Heading of the picture.
    """

    most_runs: ClassVar[int | None] = None
    draws_headline: ClassVar[bool] = False
    title: ClassVar[str]

    def check_number(self, runs: int) -> None:
        """Checks the number of runs.

        Raises:
            ScenarioError: There are more than `most_runs`.
        """
        if self.most_runs is not None and runs > self.most_runs:
            raise ScenarioError(f"'{self.name}' takes at most {self.most_runs} runs at once; you named {runs}")

    def check_headline(self, runs: Sequence[RunFolder]) -> None:
        """Checks that what is drawn on one axis is one metric.

        Raises:
            ScenarioError: The runs are ranked by different metrics.
        """
        if self.draws_headline:
            default_metric((run.headline for run in runs), f"'{self.name}'", "analyse them apart")

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
