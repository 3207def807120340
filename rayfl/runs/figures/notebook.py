"""Figures that a notebook shows without `%matplotlib inline`."""

from __future__ import annotations

from io import StringIO
from typing import Any

from matplotlib.figure import Figure

from rayfl.runs.figures.style import drawing


class NotebookFigure(Figure):
    """A figure that a notebook shows as SVG.

    Args:
        scale: As for `drawing`.
    """

    def __init__(self, *args: Any, scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._scale = scale

    def _repr_svg_(self) -> str:
        text = StringIO()
        with drawing(self._scale):
            self.savefig(text, format="svg")
        return text.getvalue()
