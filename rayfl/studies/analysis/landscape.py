"""The loss around models, in planes through the space of their weights.

Around single models: Li et al., "Visualizing the Loss Landscape of Neural Nets", NeurIPS 2018 (filter-normalised random
directions). For several models: the plane through three of them, with others projected onto it. For a trajectory: the
first two principal components of its differences from the final model.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from rayfl.config.registry import nearest
from rayfl.errors import ScenarioError
from rayfl.models.tensors import Slot
from rayfl.streams import stream
from rayfl.studies.analysis.analysis import Analysis, Open, Row, WorkUnit, listed, names_of, new_figure
from rayfl.studies.analysis.directions import Plane, filter_normalised, plane_of_trajectory, plane_through
from rayfl.studies.analysis.opened_run import OpenedRun
from rayfl.studies.analysis.replay import evaluator_of
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.wording import counted

_REACH = 0.75
"""Range of the picture to either side in a plane through several models, as a share of their extent."""
LEVELS = 20
NEAR = 1e-3
"""The picture does not mention smaller distances."""
PATH = "#d73027"

Which = PositiveInt | str


class Marked(NamedTuple):
    """A model in a panel: its coordinates, and its distance from the plane."""

    label: str
    x: float
    y: float
    distance: float


class LossSurface(NamedTuple):
    """A plane, the ranges of the picture, and the models in it."""

    plane: Plane
    xs: np.ndarray
    ys: np.ndarray
    marked: Sequence[Marked]


class Landscape(Analysis):
    """The loss in planes through the space of model vectors.

    Attributes:
        mode: `filter`: a panel around each model of each run, along random directions. `plane`: one panel with the
            plane through the first three models, and projections of all others. `trajectory`: a panel for each run with
            the path of its kept models.
        models: Models of each run: `initial`, `final`, the number of a round, or the name of a phase for the model at
            its end.
        points: Points per side of a panel; odd, so that the given model is one of them.
        span: In `filter`, half the width of a panel, in units of the filter norms.
        on: Whether to draw the loss on clients' training samples or on test samples.
        samples: Number of these samples.
        batch_norm: `stored` statistics, or `re_estimated` at every point on the same number of training samples.
        equal_levels: Whether panels share their contour levels.
        seed: Seed of the random directions.
    """

    title: ClassVar[str] = "Loss landscape"

    mode: Literal["filter", "plane", "trajectory"] = "filter"
    models: Annotated[tuple[Which, ...], BeforeValidator(listed)] = ("final",)
    points: Annotated[int, Field(ge=3)] = 21
    span: PositiveFloat = 1.0
    on: Literal["train", "test"] = "train"
    samples: PositiveInt = 1000
    batch_norm: Literal["stored", "re_estimated"] = "stored"
    equal_levels: bool = True
    seed: int = 0

    def units(self, runs: Sequence[RunFolder]) -> list[WorkUnit]:
        if self.points % 2 == 0:
            raise ScenarioError(f"points: {self.points} is even, so no point is the model; use {self.points + 1}")
        if len(set(self.models)) < len(self.models):
            raise ScenarioError("models: equal models define no plane; name each model once")
        for run in runs:
            if self.mode == "trajectory":
                if len(run.models) < 3:
                    run.check_kept(range(1, run.rounds + 1))
                    raise ScenarioError(f"'{run.path}': a trajectory requires at least 3 kept models")
            else:
                if beyond := [which for which in self.models if isinstance(which, int) and which > run.rounds]:
                    raise ScenarioError(
                        f"models: '{run.path.name}' has {counted(run.rounds, 'round')}, not {beyond[0]}"
                    )
                phases = [phase.name for phase in run.scenario.phases]
                for which in self.models:
                    if isinstance(which, str) and which not in (known := ["initial", "final", *phases]):
                        raise ScenarioError(f"models: '{run.path.name}' has no '{which}'; {nearest(which, known)}")
                run.check_kept([_round(run, which) for which in self.models])
        number = len(runs) * len(self.models)
        if self.mode == "plane" and number < 3:
            raise ScenarioError(f"models: a plane requires 3 models, and you named {number}; name more models or runs")
        panels = {"filter": number, "plane": 1, "trajectory": len(runs)}[self.mode]
        per_run = {"filter": len(self.models), "plane": 1, "trajectory": 1}[self.mode]
        return [
            WorkUnit(panel // per_run, f"panel{panel}-row{row}", (panel, row, len(runs)))
            for panel in range(panels)
            for row in range(self.points)
        ]

    def cost(self, runs: Sequence[RunFolder], units: Sequence[WorkUnit]) -> str:
        again = ", each after the same number for batch norm" if self.batch_norm == "re_estimated" else ""
        return f"{counted(len(units) * self.points, 'evaluation')} of {counted(self.samples, 'sample')}{again}"

    def compute(self, unit: WorkUnit, open: Open) -> list[Row]:
        number, row, of_runs = unit.at
        needed = range(of_runs) if self.mode == "plane" else [unit.run]
        panel = _panel(self, number, tuple(open(run) for run in needed))
        run = open(unit.run)
        round = _round(run.folder, self._of_panel(number))
        evaluator = evaluator_of(run, round, self.samples, self.on)
        statistics = evaluator_of(run, round, self.samples, "train") if self.batch_norm == "re_estimated" else None
        rows: list[Row] = []
        y = float(panel.ys[row])
        for x in map(float, panel.xs):
            scores = evaluator.score(_possible(panel.plane.point(x, y), run.workload(round).initial.layout), statistics)
            rows.append(_row(unit, x, y, loss=scores.loss, metric=scores.metric))
        if not row:
            rows += [_row(unit, one.x, one.y, model=one.label, distance=one.distance) for one in panel.marked]
        return rows

    def _of_panel(self, number: int) -> Which:
        """A model of a panel, which determines its network."""
        return "final" if self.mode == "trajectory" else self.models[number % len(self.models)]

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        names, number = names_of(runs), max(row["panel"] for row in rows) + 1
        columns = min(number, len(self.models) if self.mode == "filter" and len(self.models) > 1 else 3)
        lines = -(-number // columns)
        what = {"filter": "around models", "plane": "in the plane through three models", "trajectory": "on the way"}
        title = f"{self.title} {what[self.mode]}"
        figure = new_figure(title, runs, max(6.4, 4.4 * columns + 1), 4.1 * lines + 1.1)
        panels = figure.subplots(lines, columns, squeeze=False).flatten()
        for axes in panels[number:]:
            axes.set_visible(False)
        surfaces = [_surface([row for row in rows if row["panel"] == panel]) for panel in range(number)]
        scales = [_scale([surface[2] for surface in surfaces])] * number
        if not self.equal_levels:
            scales = [_scale([surface[2]]) for surface in surfaces]
        for panel, axes in enumerate(panels[:number]):
            marked = [row for row in rows if row["panel"] == panel and row["model"] is not None]
            drawn = axes.contourf(*surfaces[panel], levels=scales[panel], cmap="viridis_r", extend="max")
            axes.contour(*surfaces[panel], levels=scales[panel], colors="white", linewidths=0.4, alpha=0.6)
            self._mark(axes, marked)
            heading = names[marked[0]["run"]] if self.mode != "plane" else ""
            axes.set_title(f"{heading}: {marked[0]['model']}" if self.mode == "filter" else heading)
            axes.locator_params(nbins=5)
            if self.mode != "trajectory":
                axes.set_aspect("equal")
            if panel == number - 1 or not self.equal_levels:
                of = panels[:number].tolist() if self.equal_levels else axes
                bar = figure.colorbar(drawn, ax=of, pad=0.02, format="%.4g")
                bar.set_label(f"{'training' if self.on == 'train' else 'test'} loss")
        return figure

    def _mark(self, axes: Axes, marked: Sequence[Mapping[str, Any]]) -> None:
        """Draws the models; in planes through several of them, with a legend."""
        if self.mode == "trajectory":
            axes.plot([row["x"] for row in marked], [row["y"] for row in marked], color=PATH, linewidth=1.2, marker="o",
                      markersize=3)  # fmt: skip
            marked = [marked[0], marked[-1]]
        shapes = dict(zip(_labels(marked), itertools.cycle("osD^vP*X"), strict=False))
        for row, (label, shape) in zip(marked, shapes.items(), strict=True):
            axes.plot(row["x"], row["y"], linestyle="", color=PATH, marker=shape, markersize=7,
                      markeredgecolor="white", label=label)  # fmt: skip
        if self.mode != "filter":
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2, frameon=False)

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        names = names_of(runs)
        return [
            f"model    {'' if self.mode == 'plane' else names[row['run']] + ', '}{row['model']}: "
            f"{row['distance']:.3g} from the plane"
            for row in rows
            if row["model"] is not None and self.mode != "filter"
        ]


def _labels(marked: Sequence[Mapping[str, Any]]) -> list[str]:
    """Labels of models in a legend, with their distance from the plane unless they lie in it."""
    return [row["model"] + (f" ({row['distance']:.2g} away)" if row["distance"] > NEAR else "") for row in marked]


def _round(run: RunFolder, which: Which) -> int:
    if isinstance(which, int):
        return which
    ends = dict(zip((phase.name for phase in run.scenario.phases), run.last_rounds, strict=True))
    return {**ends, "initial": 0, "final": run.rounds}[which]


def _words(which: Which) -> str:
    if isinstance(which, int):
        return f"round {which}"
    return which if which in ("initial", "final") else f"after phase {which}"


def _row(
    unit: WorkUnit, x: float, y: float, model: str | None = None, distance: float | None = None,
    loss: float | None = None, metric: float | None = None,
) -> Row:  # fmt: skip
    """A row with a point of the plane, or with `model` one with the place of a model."""
    where = {"run": unit.run, "panel": unit.at[0], "x": x, "y": y}
    return where | {"model": model, "distance": distance, "loss": loss, "metric": metric}


@cache
def _panel(analysis: Landscape, number: int, runs: tuple[OpenedRun, ...]) -> LossSurface:
    """The plane of a panel, computed once per process."""
    if analysis.mode == "filter":
        return _around(analysis, analysis.models[number % len(analysis.models)], runs[0])
    names = names_of([run.folder for run in runs])
    if analysis.mode == "trajectory":
        rounds = sorted({0, *runs[0].folder.models})
        vectors = _alike([(f"round {round}", runs[0], round) for round in rounds])
    else:
        vectors = _alike(
            [
                (f"{name}, {_words(which)}" if len(runs) > 1 else _words(which), run, _round(run.folder, which))
                for run, name in zip(runs, names, strict=True)
                for which in analysis.models
            ]
        )
    try:
        if analysis.mode == "trajectory":
            plane = plane_of_trajectory(np.stack(list(vectors.values())))
        else:
            plane = plane_through(*list(vectors.values())[:3])
    except ValueError as error:
        raise ScenarioError(f"models: {error}, so they define no plane; choose others") from None
    marked = [Marked(label, *plane.project(vector.astype(np.float64))) for label, vector in vectors.items()]
    spans = [(min(values), max(values)) for values in ([one.x for one in marked], [one.y for one in marked])]
    sides = [high - low for low, high in spans]
    if analysis.mode == "plane":
        sides = [max(sides)] * 2
    middles = [(low + high) / 2 for low, high in spans]
    xs, ys = (
        middle + side * _REACH * np.linspace(-1, 1, analysis.points)
        for middle, side in zip(middles, sides, strict=True)
    )
    return LossSurface(plane, xs, ys, marked)


def _around(analysis: Landscape, which: Which, run: OpenedRun) -> LossSurface:
    round = _round(run.folder, which)
    vector, layout = run.vector(round), run.workload(round).initial.layout
    rng = stream(analysis.seed, "analysis landscape")
    directions = [filter_normalised(vector, layout, rng) for _ in range(2)]
    reach = np.linspace(-analysis.span, analysis.span, analysis.points)
    return LossSurface(
        Plane(vector.astype(np.float64), *directions), reach, reach, [Marked(_words(which), 0.0, 0.0, 0.0)]
    )


def _alike(models: Sequence[tuple[str, OpenedRun, int]]) -> dict[str, np.ndarray]:
    """Model vectors by label.

    Raises:
        ScenarioError: The models have different networks.
    """
    vectors = {label: run.vector(round) for label, run, round in models}
    layouts = {
        (
            tuple((slot.name, slot.shape) for slot in run.workload(round).initial.layout),
            run.plan.constants[run.folder.phase_of_model(round)],
        )
        for _, run, round in models
    }
    if len(layouts) > 1:
        raise ScenarioError("models: they have different networks, so their weights are not comparable; choose others")
    return vectors


def _possible(vector: np.ndarray, layout: Sequence[Slot]) -> np.ndarray:
    """The vector without negative batch norm variances, which occur away from the models."""
    for slot in layout:
        if slot.name.endswith("running_var"):
            part = slice(slot.offset, slot.end)
            vector[part] = np.maximum(vector[part], 0)
    return vector


def _surface(rows: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    points = [row for row in rows if row["model"] is None]
    xs, ys = (np.array(sorted({row[axis] for row in points})) for axis in ("x", "y"))
    losses = {(row["x"], row["y"]): row["loss"] for row in points}
    return xs, ys, np.array([[losses[x, y] for x in xs] for y in ys], float)


def _scale(losses: Sequence[np.ndarray]) -> np.ndarray:
    """Contour levels, evenly spaced in the logarithm of the loss, up to ten times the smallest loss."""
    every = np.concatenate([surface[np.isfinite(surface)] for surface in losses])
    low = max(float(every.min()), 1e-4)
    high = min(float(every.max()), max(10 * low, float(np.percentile(every, 60))))
    return np.geomspace(low, max(high, 1.01 * low), LEVELS)
