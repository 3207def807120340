"""What pictures share: the lock around drawing, the line about the data, and the costs on their axes."""

from __future__ import annotations

import textwrap
import threading
from typing import TYPE_CHECKING, NamedTuple

from rayfl.data.dataset import Provenance
from rayfl.data.sources.stand_in import STAND_IN

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DRAWING = threading.Lock()
"""matplotlib draws in one thread at a time, and two runs may end at once."""

CHARACTERS_PER_INCH = 16
"""Characters of a caption (7.5 points) that fit into an inch of a picture's width."""


def caption_provenance(figure: Figure, provenance: Provenance) -> None:
    """Writes one small line on the data below a picture, which also says whether it was generated.

    A description that does not fit is shortened; environment.json has it in full.
    """
    stands_in = provenance.description.startswith(STAND_IN)
    source = "" if stands_in else "Generated data: " if provenance.source == "generated" else "Data: "
    width = int(figure.get_figwidth() * CHARACTERS_PER_INCH)
    caption = textwrap.shorten(source + provenance.description, width, placeholder=" …")
    figure.supxlabel(caption, fontsize=7.5, color="#555555", parse_math=False)


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
