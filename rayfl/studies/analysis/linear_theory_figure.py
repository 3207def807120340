"""FedBug's Figure 2: theory against simulation, losses, discrepancies and their ratios; and the records behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rayfl.files import atomic_write
from rayfl.runs.figures.style import COLOURS, GREY, SCREEN, drawing, plain_numbers
from rayfl.runs.folder import check_writable
from rayfl.studies.analysis.analysis import save, tidy
from rayfl.studies.analysis.linear_theory import Method, contraction_ratio, ratios_by_round

NAME = "linear_theory"
_LEAST_LOSS, _LEAST_DISCREPANCY = 1e-30, 1e-15
"""Smaller values are rounding errors and drawn as these."""


def write(found: Sequence[Method], folder: Path) -> list[Path]:
    """Writes linear_theory.parquet, .png and .pdf to a folder; returns the paths.

    Raises:
        ResourceError: The folder is not writable.
    """
    check_writable(folder)
    path = folder / f"{NAME}.parquet"
    with atomic_write(path) as temporary:
        pq.write_table(records(found), temporary)
    with drawing(SCREEN):
        return [path, *save(draw(found), folder / NAME)]


def records(found: Sequence[Method]) -> pa.Table:
    """A row for every method, seed and round, from 0: the weights, their loss and discrepancy |a - b|.

    `ratio` is that discrepancy over the one of the round before, null at the start and for rounding errors; `theory` is
    the seed's bound on it near the minimum.
    """
    tables = []
    for method in found:
        history = method.history
        rounds, seeds = np.indices(history.v.shape)
        ratios = np.vstack([np.full(history.v.shape[1], np.nan), ratios_by_round(history)])
        columns = {
            "seed": seeds,
            "round": rounds,
            **history._asdict(),
            "loss": history.loss,
            "discrepancy": history.discrepancy,
            "ratio": ratios,
            "theory": np.broadcast_to(method.theory, history.v.shape),
        }
        flat = {name: pa.array(values.T.ravel(), from_pandas=True) for name, values in columns.items()}
        names = {
            "method": pa.array([method.name] * seeds.size),
            "frozen_steps": pa.array([method.frozen_steps] * seeds.size, pa.int64()),
        }
        tables.append(pa.table({**names, **flat}))
    return pa.concat_tables(tables)


def draw(found: Sequence[Method]) -> Figure:
    """The scatter of theory and simulation, and curves of loss, discrepancy and ratio over the rounds."""
    rounds, seeds = found[0].history.v.shape
    figure = Figure(figsize=(10, 7.4), layout="constrained")
    figure.suptitle("Two clients and a linear network")
    (scatter, losses), (discrepancies, ratios) = figure.subplots(2, 2)
    for method, colour in zip(found, COLOURS, strict=False):
        simulated = contraction_ratio(method.history)
        scatter.plot(method.theory, simulated, "o", color=colour, markersize=4, alpha=0.6, label=method.name)
        _curve(losses, np.maximum(method.history.loss, _LEAST_LOSS), colour)
        _curve(discrepancies, np.maximum(method.history.discrepancy, _LEAST_DISCREPANCY), colour)
        _curve(ratios, ratios_by_round(method.history), colour, first=1)
        ratios.axhline(float(np.median(method.theory)), color=colour, linestyle=":", linewidth=1)
    ends = [0.48, 1.0]
    scatter.plot(ends, ends, color=GREY, linewidth=0.8, zorder=0)
    scatter.legend()
    tidy(scatter, "ratio in theory", "simulated ratio", "Contraction ratio of each seed")
    for axes, words in ((losses, "loss"), (discrepancies, "discrepancy |a - b|")):
        axes.set_yscale("log")
        plain_numbers(axes)
        tidy(axes, "round", words, f"{words[0].upper()}{words[1:]}", whole_x=True)
    ratios.set_ylim(0.4, 1.0)
    tidy(ratios, "round", "ratio to the round before", "Ratio of discrepancies; dotted: theory", whole_x=True)
    figure.supxlabel(
        f"{seeds} seeds, {rounds - 1} rounds; medians with bands between quartiles, ratios until a seed has only "
        "rounding errors left.\nWith v fixed, theory is the limit of many local steps; a small v takes very many.",
        fontsize=8,
        color=GREY,
    )
    return figure


def _curve(axes: Axes, values: np.ndarray, colour: str, first: int = 0) -> None:
    """Median and quartiles over the seeds, in the rounds in which all of them have a value."""
    all_known = np.isfinite(values).all(axis=1)
    low, middle, high = np.percentile(values[all_known], (25, 50, 75), axis=1)
    places = np.flatnonzero(all_known) + first
    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(places, middle, color=colour, linewidth=1.6)
