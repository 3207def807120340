"""Smoothed learning curves, the cost of reaching a target, and the final metric against the switch to federation.

As in CyclicFL: a Savitzky-Golay filter (window 41, order 3) smooths curves, whose last rounds are enlarged (version 1,
Figure 5; version 2, Figure 7), a cubic is fitted to the final accuracy over the round of the switch (Figures 6 and 8),
and a histogram counts clients by their number of batches (version 2, Figure 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import Field, NonNegativeInt, PositiveInt
from scipy.signal import savgol_filter

from rayfl.engine.plan.cohort import expected_updates
from rayfl.engine.plan.headline import check_target
from rayfl.errors import DataError, ScenarioError
from rayfl.runs.figures.style import COLOURS
from rayfl.studies.analysis.analysis import (
    BLUE,
    DARK,
    Analysis,
    Open,
    Row,
    WorkUnit,
    as_share,
    by_run,
    names_of,
    new_figure,
    tidy,
)
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.studies.statistics import Key, series
from rayfl.wording import counted

CUBIC = 4
"""Number of different switches that a cubic requires."""
FEW = 4
"""Up to this many lines are told apart with their unsmoothed values behind them."""


class Curve(Analysis):
    """Smoothed curves of runs, their batches per client, and their final metric over the round of the switch.

    Attributes:
        window: Window of the filter, in evaluated rounds; odd.
        order: Order of its polynomial.
        target: A value of the headline metric; the analysis prints the round that reaches it, with its bytes and client
            updates.
        zoom: Number of last rounds to enlarge in a panel of their own; by default none.
        batch_size: Batch size for counting the clients' batches; by default that of the last phase.
    """

    draws_headline: ClassVar[bool] = True
    title: ClassVar[str] = "Learning curves"

    window: PositiveInt = 41
    order: NonNegativeInt = 3
    target: float | None = None
    zoom: PositiveInt | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None

    def units(self, runs: Sequence[RunFolder]) -> list[WorkUnit]:
        if self.window % 2 == 0:
            raise ScenarioError(f"window: must be odd (got {self.window}); use {self.window + 1}")
        if self.order >= self.window:
            raise ScenarioError(
                f"order: must be below window (got {self.order} and {self.window}); use order={self.window - 1}"
            )
        for run in runs:
            if self.target is not None:
                check_target(self.target, run.headline.reported, run.headline)
            rounds = [row["round"] for row in _evaluated(run)]
            if len(rounds) < self.window:
                most = max(1, len(rounds) - 1 + len(rounds) % 2)
                below = f" order={most - 1}" if self.order >= most else ""
                raise ScenarioError(
                    f"window: '{run.path}' has {len(rounds)} evaluated rounds, fewer than {self.window}; use "
                    f"window={most}{below}"
                )
            if self.zoom is not None and len(shown := [one for one in rounds if one > rounds[-1] - self.zoom]) < 2:
                raise ScenarioError(f"zoom: '{run.path}' has {len(shown)} evaluated round in its last {self.zoom}")
            if self.zoom is not None and self.zoom >= rounds[-1]:
                raise ScenarioError(f"zoom: must be below the {rounds[-1]} rounds of '{run.path}' (got {self.zoom})")
        return [WorkUnit(number, f"run{number}") for number in range(len(runs))]

    def cost(self, runs: Sequence[RunFolder], units: Sequence[WorkUnit]) -> str:
        return f"loading the data of {counted(len(units), 'run')} to count batches; no training or evaluation"

    def compute(self, unit: WorkUnit, open: Open) -> list[Row]:
        run = open(unit.run)
        folder = run.folder
        rows = _evaluated(folder)
        smooth = savgol_filter([row[folder.headline.reported] for row in rows], self.window, self.order)
        blank = {"run": unit.run, "round": None, "value": None, "smoothed": None, "bytes": None, "client": None,
                 "batches": None}  # fmt: skip
        curve_rows = [
            blank | {"round": row["round"], "value": float(row[folder.headline.reported]), "smoothed": float(value),
                     "bytes": row["bytes"]}
            for row, value in zip(rows, smooth, strict=True)
        ]  # fmt: skip
        size = self.batch_size or folder.scenario.phases[-1].local.batch_size
        samples = run.plan.result.population.sizes
        batches = np.ones(len(samples), int) if size == "full" else -(-samples // size)
        return curve_rows + [blank | {"client": c, "batches": int(number)} for c, number in enumerate(batches)]

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        cubic = len(runs) > 1
        figure = new_figure(self.title, runs, 11, 7.4)
        above = "cccc" if self.zoom is None else "cccz"
        areas = figure.subplot_mosaic(f"{above};bb{'ss' if cubic else 'bb'}", height_ratios=(1.3, 1))
        curves, clients = areas["c"], areas["b"]
        points = [[row for row in own if row["round"] is not None] for own in by_run(rows, runs)]
        lines = _lines(points, runs)
        for (name, line), colour in zip(lines.items(), _colours(len(lines)), strict=True):
            curves.plot(*line.recorded, color=colour, alpha=0.3 if len(lines) <= FEW else 0.08, linewidth=1)
            curves.plot(*line.smoothed, color=colour, linewidth=1.8, label=name)
            if line.switch > 0:
                curves.axvline(line.switch + 0.5, color=colour, linestyle=":", linewidth=1.2)
            if self.zoom is not None:
                rounds, values = line.smoothed
                last = rounds > rounds[-1] - self.zoom
                areas["z"].plot(rounds[last], values[last], color=colour, linewidth=1.8)
        headline = runs[0].headline
        if self.target is not None:
            curves.axhline(self.target, color=DARK, linestyle="--", linewidth=0.8, label="target")
        tidy(curves, "round", headline.reported_words, whole_x=True)
        as_share(curves, headline)
        curves.legend(ncols=1 if len(lines) <= FEW else 2)
        if self.zoom is not None:
            tidy(areas["z"], "round", title=f"last {self.zoom} rounds", whole_x=True)
            areas["z"].locator_params(axis="x", nbins=4)
            as_share(areas["z"], headline)
        batches = [[row["batches"] for row in own if row["client"] is not None] for own in by_run(rows, runs)]
        _draw_batches(clients, batches, names_of(runs))
        if cubic:
            _draw_switch(areas["s"], [switch_of(run) for run in runs], [own[-1]["value"] for own in points], runs[0])
        return figure

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        if self.target is None:
            return []
        lines = []
        for run, name, own in zip(runs, names_of(runs), by_run(rows, runs), strict=True):
            reached = first_reaching(own, self.target, run.headline.higher_is_better)
            if reached is None:
                lines.append(f"target   {name}: {run.headline.text(self.target)} is not reached")
                continue
            updates = sum(_cohort(run, round) for round in range(1, reached["round"] + 1))
            lines.append(
                f"target   {name}: {run.headline.text(self.target)} in round {reached['round']}, after "
                f"{reached['bytes'] / 1e6:,.1f} MB and {updates:,.0f} client updates"
            )
        return lines


class _Line(NamedTuple):
    """A line of the picture: rounds and values, as recorded and smoothed, and the rounds before the last phase."""

    recorded: tuple[np.ndarray, np.ndarray]
    smoothed: tuple[np.ndarray, np.ndarray]
    switch: int


def _lines(points: Sequence[Sequence[Mapping[str, Any]]], runs: Sequence[RunFolder]) -> dict[str, _Line]:
    """Lines by name; those of runs of a grid that differ only in seed and task are averaged."""
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(names_of(runs, seeds=False)):
        groups.setdefault(name, []).append(number)

    def mean(numbers: Sequence[int], column: str) -> tuple[np.ndarray, np.ndarray]:
        curves: dict[Key, tuple[np.ndarray, np.ndarray]] = {}
        for number in numbers:
            place, own = runs[number].place, points[number]
            key = (None, number) if place is None else (place.task, place.seed)
            curves[key] = (np.array([row["round"] for row in own], float), np.array([row[column] for row in own]))
        line = series(curves, "none")
        return line.x, line.mean

    return {
        name: _Line(mean(numbers, "value"), mean(numbers, "smoothed"), switch_of(runs[numbers[0]]))
        for name, numbers in groups.items()
    }


def _colours(number: int) -> Sequence[Any]:
    """Colours of lines; of many, which are mostly a sweep, shades from dark to light in their order."""
    if number <= len(COLOURS):
        return COLOURS[:number]
    return list(colormaps["viridis"](np.linspace(0, 0.92, number)))


def first_reaching(
    rows: Sequence[Mapping[str, Any]], target: float, higher_is_better: bool = True
) -> Mapping[str, Any] | None:
    """The first evaluated round with an unsmoothed value as good as a target."""
    sign = 1 if higher_is_better else -1
    points = (row for row in rows if row["round"] is not None)
    return next((row for row in points if sign * row["value"] >= sign * target), None)


def switch_of(run: RunFolder) -> int:
    """Number of rounds before the last phase."""
    return run.plans[-1].first_round - 1


def _cohort(run: RunFolder, round: int) -> float:
    return expected_updates(run.plans[run.index(round).phase].phase, run.clients)


def _evaluated(run: RunFolder) -> list[dict[str, Any]]:
    rows = [row for row in run.rows if row.get(run.headline.reported) is not None]
    if not rows:
        raise DataError(f"'{run.path}': metrics.jsonl has no {run.headline.reported_words}; it was never evaluated")
    return rows


def _draw_batches(axes: Axes, batches: Sequence[Sequence[int]], names: Sequence[str]) -> None:
    distinct = list(dict.fromkeys(tuple(own) for own in batches))
    edges = np.histogram_bin_edges(np.concatenate([np.array(own) for own in distinct]), 20)
    for number, own in enumerate(distinct):
        label = names[[tuple(one) for one in batches].index(own)] if len(distinct) > 1 else None
        axes.hist(own, edges.tolist(), color=COLOURS[number % len(COLOURS)], alpha=0.6, edgecolor="white", label=label)
    if len(distinct) > 1:
        axes.legend()
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    tidy(axes, "batches of a client", "clients", whole_x=True)


def _draw_switch(axes: Axes, switches: Sequence[int], values: Sequence[float], run: RunFolder) -> None:
    axes.plot(switches, values, color=BLUE, marker="o", linestyle="")
    if len(set(switches)) >= CUBIC:
        cubic = np.polynomial.Polynomial.fit(switches, values, 3)
        dense = np.linspace(min(switches), max(switches), 200)
        axes.plot(dense, cubic(dense), color=DARK, linewidth=1.2, label="cubic")
        axes.legend()
    tidy(axes, "rounds before the last phase", f"final {run.headline.reported_words}", whole_x=True)
    as_share(axes, run.headline)
