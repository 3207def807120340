"""Scores of runs over a key of their scenarios: a point for each cell of a grid, a line for each row or column.

Such are CyclicFL's figures over the steps and clients of a relay, FedBug's Figure 3 and FPS's Figure 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from rayfl.config.registry import nearest
from rayfl.errors import ScenarioError
from rayfl.runs.figures.panels import DrawnCurve, Panel
from rayfl.runs.figures.quantities import Quantity, Series, quantity_of
from rayfl.studies.figures.groups import Group, Recorded, settings_of
from rayfl.studies.figures.scores import At, score
from rayfl.studies.statistics import Band, mean_and_band, repetitions

_ROUNDS_OF_PHASE = re.compile(r"phases\.[^.]+\.rounds")


def sweep(recorded: Recorded, names: Sequence[str], key: str, at: At, window: int, band: Band) -> list[Panel]:
    """A panel for each metric, with means and bands of scores over a key of the scenarios.

    Args:
        recorded: The runs.
        names: Columns of metrics.jsonl.
        key: A key path, with phases by their names, of numbers that differ along the rows or columns of a grid.
        at: Which rounds scores are taken from.
        window: Evaluated rounds over which curves are smoothed first.
        band: See `Band`.

    Raises:
        ScenarioError: A run has no number at this key, or runs of a line have the same.
    """
    places = _values(recorded.groups, key)
    lines = _lines(recorded, places, key)

    def points(groups: Sequence[Group], name: str) -> Series:
        ordered = sorted(groups, key=lambda group: places[id(group)])
        scores = [{run.key: np.array([score(run, name, at, window)]) for run in group.runs} for group in ordered]
        mean, low, high = np.concatenate([np.stack(mean_and_band(of_group, band)) for of_group in scores], axis=1)
        most = max(len(repetitions(of_group)) for of_group in scores)
        return Series(np.array([places[id(group)] for group in ordered]), mean, low, high, most)

    x = Quantity(" ".join(key.split(".")[-2:]).replace("_", " "))
    return [
        Panel(
            "",
            x,
            quantity_of(recorded.runs, name),
            tuple(DrawnCurve(label, points(groups, name)) for label, groups in lines.items()),
        )
        for name in names
    ]


def _values(groups: Sequence[Group], key: str) -> dict[int, float]:
    """The number at a key in the scenario of each group; a phase that one lacks has no rounds there."""
    settings = [settings_of(group.runs[0].scenario) for group in groups]
    known = dict.fromkeys(name for of_group in settings for name in of_group)
    if key not in known:
        raise ScenarioError(f"x: the scenarios of these runs have no key '{key}'; {nearest(key, known)}")
    values: dict[int, float] = {}
    for group, of_group in zip(groups, settings, strict=True):
        value: Any = of_group.get(key, 0 if _ROUNDS_OF_PHASE.fullmatch(key) else "none")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ScenarioError(f"x: '{key}' is no number in '{group.runs[0].where}' ({value}); choose another key")
        values[id(group)] = float(value)
    return values


def _lines(recorded: Recorded, places: dict[int, float], key: str) -> dict[str, list[Group]]:
    """Groups by line: those of a row or of a column, whichever makes fewer lines of points that differ."""
    fitting = []
    for part in ("label", "panel"):
        lines: dict[str, list[Group]] = {}
        for group in recorded.groups:
            lines.setdefault(getattr(group, part), []).append(group)
        if all(len({places[id(group)] for group in groups}) == len(groups) for groups in lines.values()):
            fitting.append(lines)
    if not fitting or len(set(places.values())) < 2:
        raise ScenarioError(f"x: '{key}' does not differ along rows or columns of these runs; choose one that does")
    return min(fitting, key=len)
