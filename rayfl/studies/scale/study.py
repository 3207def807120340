"""Measures one axis after another, fits lines, and names what breaks first."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rayfl.errors import ResourceError
from rayfl.studies.scale.measure import Cost, cost
from rayfl.studies.scale.processes import ROLES


@dataclass(frozen=True)
class Axis:
    """What grows.

    Attributes:
        scenario: The scenario that it grows in.
        unit: What its values count.
        values: The usual ones.
        overrides: Function from a value to overrides of the scenario.
    """

    scenario: str
    unit: str
    values: Sequence[float]
    overrides: Callable[[float], list[str]]


def _of_data(megabytes: float) -> list[str]:
    values = max(3, round(megabytes * 1e6 / 4 / 10_000))
    return [f"data.options.values={values}", f"model.values={values}"]


def _of_cohort(clients: float) -> list[str]:
    """Beyond the scenario's thousand, there are as many registered clients as train in a round."""
    registered = [f"data.options.clients={clients:.0f}"] if clients > 1000 else []
    return [f"phases.scale.cohort={clients:.0f}", *registered]


AXES: Mapping[str, Axis] = {
    "clients": Axis(
        "scale_clients", "registered clients", (1e4, 1e5, 1e6), lambda n: [f"data.options.clients={n:.0f}"]
    ),
    "cohort": Axis("scale_cohort", "clients a round", (10, 100, 1000), _of_cohort),
    "hosts": Axis("scale_cohort", "workers", (1, 2), lambda n: [f"resources.hosts={n:.0f}"]),
    "params": Axis("scale_model", "parameters", (1e4, 1e6, 1e7), lambda n: [f"model.params={n:.0f}"]),
    "data": Axis("scale_data", "MB of data", (1, 100, 400), _of_data),
    "states": Axis(
        "scale_states",
        "clients with a state",
        (10, 100, 1000),
        lambda n: [f"data.options.clients={n:.0f}", f"phases.scale.cohort={n:.0f}"],
    ),
}


@dataclass(frozen=True)
class Point:
    """One measurement.

    Attributes:
        axis: Name of the axis.
        value: Its value.
        cost: What the run took; None if it failed.
        failure: Why.
    """

    axis: str
    value: float
    cost: Cost | None = None
    failure: str = ""


def points(axes: Mapping[str, Sequence[float]], budget_s: float) -> Iterable[Point]:
    """Measures the smallest values of all axes first, then the next ones, until the budget is spent.

    Args:
        axes: The values of each axis.
        budget_s: Seconds for everything. A run that it cuts short is a failure; those after it are left out.
    """
    end = time.monotonic() + budget_s
    longest = max(map(len, axes.values()), default=0)
    for place in range(longest):
        for name, values in axes.items():
            if place >= len(values):
                continue
            left = end - time.monotonic()
            if left <= 0:
                return
            axis, value = AXES[name], values[place]
            try:
                yield Point(name, value, cost(axis.scenario, axis.overrides(value), left))
            except ResourceError as error:
                yield Point(name, value, failure=str(error))


@dataclass(frozen=True)
class Line:
    """A fit y = at_zero + slope x."""

    at_zero: float
    slope: float

    @classmethod
    def through(cls, x: Sequence[float], y: Sequence[float]) -> Line:
        """The line of least squares through at least two points."""
        slope, at_zero = np.polyfit(np.asarray(x, float), np.asarray(y, float), 1)
        return cls(float(at_zero), float(slope))

    def reaches(self, y: float) -> float:
        """Where the line has a value; infinity if it never does."""
        return (y - self.at_zero) / self.slope if self.slope > 0 else float("inf")


def of_axis(found: Iterable[Point], name: str) -> list[tuple[float, Cost]]:
    """The measurements of an axis, by increasing value."""
    return sorted(((one.value, one.cost) for one in found if one.axis == name and one.cost), key=lambda pair: pair[0])


def machine_bytes() -> int:
    """Main memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


GROWTH = 0.02
"""Share by which memory must grow along an axis before a line through it means anything."""


def first_to_break(found: Sequence[Point], limit: int) -> list[str]:
    """For each axis along which memory grows, where it fills the machine by the fitted lines, and who takes most of it.

    Args:
        found: The measurements.
        limit: Bytes of memory.
    """
    lines = []
    for name, axis in AXES.items():
        pairs = of_axis(found, name)
        x, totals = [value for value, _ in pairs], [sum(one.memory.values()) for _, one in pairs]
        if name == "hosts" or len(x) < 2 or totals[-1] < (1 + GROWTH) * totals[0]:
            continue
        full = Line.through(x, totals).reaches(limit)
        if full == math.inf:
            continue
        slopes = {role: Line.through(x, [one.memory.get(role, 0) for _, one in pairs]).slope for role in ROLES}
        role = max(slopes, key=slopes.__getitem__)
        lines.append(
            f"{name}: {limit / 1e9:.0f} GB of memory are full at about {float(f'{full:.2g}'):,.0f} {axis.unit}; most "
            f"of it is in the {role}, {slopes[role]:,.0f} bytes for each"
        )
    return lines


COLUMNS = ("axis", "value", "s a round", "CPU s a round", "driver", "workers", "server", "scheduler", "Ray", "store")


def rows(found: Iterable[Point]) -> list[tuple[str, ...]]:
    """The table, below `COLUMNS`: memory in MB at the peak, and MB that a round creates in the object stores."""
    table = []
    for point in found:
        axis, value = AXES[point.axis], f"{point.value:,.10g}"
        if point.cost is None:
            table.append((axis.unit, value, point.failure, *[""] * (len(COLUMNS) - 3)))
            continue
        one = point.cost
        megabytes = [f"{one.memory.get(role, 0) / 1e6:,.0f}" for role in COLUMNS[4:9]]
        seconds = f"{one.round_s:.3g}", f"{sum(one.processor_s.values()):.3g}"
        table.append((axis.unit, value, *seconds, *megabytes, f"{one.store_bytes / 1e6:,.3g}"))
    return table


def as_markdown(found: Sequence[Point], command: str, limit: int) -> str:
    """The table, axis by axis, and what breaks first, as Markdown."""
    by_axis = sorted(found, key=lambda point: (list(AXES).index(point.axis), point.value))
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *rows(by_axis)]
    breaks = [f"- {line}" for line in first_to_break(found, limit)]
    return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", *breaks, "", f"    {command}", ""])


def save(found: Sequence[Point], path: Path) -> None:
    """Writes the measurements as JSON, from which `loaded` reads them."""
    path.write_text(json.dumps([asdict(point) for point in found], indent=1), encoding="utf-8")


def loaded(path: Path) -> list[Point]:
    """Reads the measurements that `save` wrote."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    return [Point(**point | {"cost": point["cost"] and Cost(**point["cost"])}) for point in plain]
