"""Vertical lines where one phase of a run ends and the next begins, with the names of both above the axes."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from rayfl.runs.figures.style import GREY, LineStyle

POINTS, ROW_POINTS = 6.2, 7.6
"""Size of the names, and the height of a row of them."""

GAP_POINTS = 5
"""Least distance of two names in a row."""

_CHARACTER_POINTS = 3.4


def mark_phases(
    axes: Axes, boundaries: Mapping[str, tuple[tuple[float, str], ...]], styles: Mapping[str, LineStyle]
) -> list[Annotation]:
    """Draws a line at each boundary: grey where curves agree on it, else in the colour of its own curve.

    Args:
        axes: With the limits that they will have.
        boundaries: Places on the x axis and names, `cyclic → federated`, by the label of the curve.
        styles: The look of a curve by its label.

    Returns:
        The names, which `arrange` puts in their places.
    """
    owners: dict[tuple[float, str], list[str]] = {}
    for label, ends in boundaries.items():
        for end in ends:
            owners.setdefault(end, []).append(label)
    names: dict[str, Annotation] = {}
    for (place, text), labels in sorted(owners.items()):
        alone = len(labels) == 1 and len(boundaries) > 1
        colour = styles[labels[0]].colour if alone else GREY
        axes.axvline(place, color=colour, linewidth=0.7, linestyle=(0, (2, 2)), zorder=1)
        if text in names:
            names[text].set_color(GREY)
            continue
        names[text] = axes.annotate(
            text,
            (place, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=POINTS,
            color=colour,
        )
        names[text].set_in_layout(False)  # a name at the edge would squeeze the axes
    return list(names.values())


def arrange(figure: Figure, names: Mapping[Axes, list[Annotation]], width_inches: float) -> int:
    """Moves names into their axes' width, and those that would touch into a row above.

    Args:
        figure: The figure.
        names: Of each axes, from left to right.
        width_inches: Of one pair of axes with its labels; longer names are shortened to fit.

    Returns:
        The number of rows.
    """
    longest = int(0.42 * width_inches * 72 / _CHARACTER_POINTS)
    for name in (name for of_axes in names.values() for name in of_axes):
        before, arrow, after = name.get_text().partition(" → ")
        name.set_text(f"{_shortened(before, longest)}{arrow}{_shortened(after, longest)}")
    figure.draw_without_rendering()
    point, most = figure.dpi / 72, 1
    for axes, of_axes in names.items():
        frame, ends = axes.get_window_extent(), list[float]()
        for name in of_axes:
            box = name.get_window_extent()
            shift = max(min(0.0, frame.x1 - box.x1), frame.x0 - box.x0)
            row = next((row for row, end in enumerate(ends) if end < box.x0 + shift), len(ends))
            ends[row : row + 1] = [box.x1 + shift + GAP_POINTS * point]
            name.xyann = (shift / point, 2 + ROW_POINTS * row)
            name.set_in_layout(True)
        most = max(most, len(ends))
    return most


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
