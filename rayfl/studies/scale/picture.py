"""The picture of `rayfl scale`: time, efficiency, memory and bytes, a panel each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rayfl.runs.figures.style import PAGE_INCHES, drawing, line_style, plain_numbers, write
from rayfl.studies.scale.measure import Cost
from rayfl.studies.scale.processes import ROLES
from rayfl.studies.scale.study import Point, of_axis


def draw(found: Sequence[Point], path: Path) -> None:
    """Draws four panels into a file, whose ending gives its format."""
    from matplotlib.figure import Figure  # slow to load, and a study that fails draws nothing

    with drawing():
        figure = Figure(figsize=(PAGE_INCHES, 4.6), layout="constrained")
        panels = figure.subplots(2, 2)
        _time(panels[0, 0], of_axis(found, "cohort"))
        _efficiency(panels[0, 1], of_axis(found, "hosts"))
        _memory(panels[1, 0], {name: of_axis(found, name) for name in ("clients", "data")})
        _bytes(panels[1, 1], of_axis(found, "params"))
        plain_numbers(*panels.flat)
        write(figure, path)


def _time(axes: Any, pairs: Sequence[tuple[float, Cost]]) -> None:
    axes.set(title="Time of a round", xlabel="clients a round", ylabel="seconds", xscale="log", yscale="log")
    if not pairs:
        return
    x, y = [value for value, _ in pairs], [one.round_s for _, one in pairs]
    axes.plot(x, y, marker="o", label="measured", color=line_style(0).colour)
    axes.plot(x, [y[-1] * value / x[-1] for value in x], ls=":", color="#777777", label="ideal: by the largest")
    axes.legend()


def _efficiency(axes: Any, pairs: Sequence[tuple[float, Cost]]) -> None:
    axes.set(title="Efficiency", xlabel="workers", ylabel="speed a worker, of one", ylim=(0, 1.15))
    if not pairs:
        return
    first, base = pairs[0][0], pairs[0][1].round_s
    axes.plot(
        [value for value, _ in pairs],
        [base * first / (one.round_s * value) for value, one in pairs],
        marker="o",
        color=line_style(0).colour,
    )
    axes.axhline(1, ls=":", color="#777777")
    axes.set_xticks([value for value, _ in pairs])


def _memory(axes: Any, by_axis: dict[str, list[tuple[float, Cost]]]) -> None:
    axes.set(title="Memory above the smallest run", xlabel="MB of data", ylabel="MB", xscale="log", yscale="symlog")
    measured = {name: (dash, pairs) for dash, (name, pairs) in zip("-:", by_axis.items(), strict=True) if pairs}
    for number, (dash, pairs) in enumerate(measured.values()):
        x, least = [max(one.data_bytes, 1) / 1e6 for _, one in pairs], pairs[0][1].memory
        for place, role in enumerate(ROLES):
            y = [max(0.0, (one.memory[role] - least[role]) / 1e6) for _, one in pairs]
            label = None if number else role
            axes.plot(x, y, marker=".", ls=dash, color=line_style(place).colour, label=label)
    if measured:
        title = "more clients\n(dotted: larger\nsamples)"
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), title=title, title_fontsize=7)


def _bytes(axes: Any, pairs: Sequence[tuple[float, Cost]]) -> None:
    axes.set(title="Objects of a round", xlabel="parameters", ylabel="MB", xscale="log", yscale="log")
    pairs = [pair for pair in pairs if pair[1].store_bytes]  # small ones travel with their calls
    if not pairs:
        return
    x = [value for value, _ in pairs]
    axes.plot(x, [one.store_bytes / 1e6 for _, one in pairs], marker="o", color=line_style(0).colour, label="created")
    axes.plot(x, [one.model_bytes / 1e6 for _, one in pairs], ls=":", color="#777777", label="one model")
    axes.legend()
