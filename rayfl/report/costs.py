"""Costs of a run that scores are plotted against."""

from __future__ import annotations

from typing import NamedTuple


class Cost(NamedTuple):
    """A quantity other than rounds to plot a score against.

    Attributes:
        column: Its column in the metrics.
        words: Its name on the axis.
        units: Size of each unit in units of the column, ascending, and its symbol.
    """

    column: str
    words: str
    units: tuple[tuple[float, str], ...]

    def unit_of(self, most: float) -> tuple[float, str]:
        """The largest unit that is not above `most`; else the smallest."""
        return next((unit for unit in reversed(self.units) if most >= unit[0]), self.units[0])


CLOCK = "simulated_seconds"
COSTS = (
    Cost(CLOCK, "simulated time", ((1, "s"), (60, "min"), (3600, "h"), (86400, "days"))),
    Cost("bytes", "traffic", ((1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))),
    Cost("energy_joules", "energy of clients", ((1, "J"), (1e3, "kJ"), (1e6, "MJ"))),
)
"""Costs of runs with a virtual clock."""
