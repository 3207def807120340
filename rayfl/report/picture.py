"""Things that all pictures share: the lock around drawing, and the line about the data."""

from __future__ import annotations

import textwrap
import threading
from typing import TYPE_CHECKING

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
