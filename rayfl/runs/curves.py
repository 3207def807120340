"""Learning curves of a run as a picture: headline metric and losses over the rounds, phases marked.

Titles, names and descriptions are drawn literally: dollar signs do not start formulas.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rayfl.data.dataset import Provenance
from rayfl.engine.plan.headline import Headline
from rayfl.engine.plan.rounds import PhaseSpan
from rayfl.files import atomic_write
from rayfl.runs.pictures import CLOCK, COSTS, DRAWING, Cost, caption_provenance

PHASE_COLOURS = ("#b35806", "#2166ac", "#1b7837", "#762a83")
TEST, TRAIN = "#222222", "#8c8c8c"


def draw_curves(
    metrics: pa.Table,
    headline: Headline,
    phases: Sequence[PhaseSpan],
    title: str,
    provenance: Provenance,
    path: Path,
) -> None:
    """Writes a PNG of the headline metric, and of test and training loss, over the rounds.

    Args:
        metrics: Columns as in `rayfl.engine.columns.METRICS`, sorted by round; null where a value was not finite.
        headline: The metric that ranks rounds.
        phases: In order.
        title: Title above the curves.
        provenance: The data, described in a line below the curves.
        path: The file to write.
    """
    with DRAWING:
        figure = _figure(metrics, headline, phases, title, provenance)
        with atomic_write(path) as temporary:
            figure.savefig(temporary, format="png")


def _figure(
    metrics: pa.Table, headline: Headline, phases: Sequence[PhaseSpan], title: str, provenance: Provenance
) -> Figure:
    timed = CLOCK in metrics.column_names
    costs = [
        cost for cost in COSTS if timed and cost.column in metrics.column_names and _column(metrics, cost.column).any()
    ]
    figure = Figure(figsize=(8, 9.0 if costs else 6.4), dpi=150, layout="constrained")
    cells = figure.add_gridspec(3 if costs else 2, max(1, len(costs)), height_ratios=(3, 2, 2)[: 3 if costs else 2])
    upper = figure.add_subplot(cells[0, :])
    lower = figure.add_subplot(cells[1, :], sharex=upper)
    upper.tick_params(labelbottom=False)
    rounds = _column(metrics, "round")
    ranked = np.array([headline.ranks(name) for name in metrics["phase"].to_pylist()], bool)
    scores = np.where(ranked, _column(metrics, headline.column), np.nan)
    test_loss, train_loss = _column(metrics, "test_loss"), _column(metrics, "train_loss")
    point: dict[str, Any] = {"marker": "o", "markersize": 3.5} if len(rounds) <= 40 else {}

    upper.plot(rounds, scores, color=TEST, linewidth=1.6, label=_score_label(headline, rounds, scores), **point)
    if headline.is_share:
        upper.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
        upper.set_ylim(bottom=0)
    upper.set_ylabel(headline.words)
    lower.plot(rounds, train_loss, color=TRAIN, linewidth=1.0, label="training loss in the round", **point)
    lower.plot(rounds, test_loss, color=TEST, linewidth=1.6, label=_loss_label(test_loss), **point)
    lower.set_ylabel("loss")
    lower.set_xlabel("round")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    lower.set_xlim(phases[0].first_round - 0.5, phases[-1].last_round + 0.5)
    for axes in (upper, lower):
        _shade_phases(axes, phases)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="best", fontsize=9, framealpha=0.9)

    for place, cost in enumerate(costs):
        axes = figure.add_subplot(cells[2, place])
        _draw_against(axes, cost, _column(metrics, cost.column), scores, headline)
        axes.tick_params(labelleft=not place)
        if not place:
            axes.set_ylabel(headline.words, fontsize=9)
    figure.suptitle(textwrap.fill(title, 68), fontsize=13, fontweight="bold", parse_math=False)
    caption_provenance(figure, provenance)
    _name_phases(figure, upper, phases)
    return figure


def _draw_against(axes: Axes, cost: Cost, spent: np.ndarray, scores: np.ndarray, headline: Headline) -> None:
    """The headline metric over a cumulative cost."""
    factor, unit = cost.unit_of(float(np.nanmax(spent, initial=0.0)))
    axes.plot(spent / factor, scores, color=TEST, linewidth=1.2, marker=".", markersize=3)
    if headline.is_share:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
        axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{cost.words} ({unit})", fontsize=9)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _column(metrics: pa.Table, name: str) -> np.ndarray:
    values: np.ndarray = metrics[name].to_numpy().astype(np.float64)
    return values


def _score_label(headline: Headline, rounds: np.ndarray, scores: np.ndarray) -> str:
    if not np.isfinite(scores).any():
        return headline.words
    best = headline.best(scores.tolist())
    return f"{headline.words} (best {headline.text(scores[best])} in round {rounds[best]:.0f})"


def _loss_label(loss: np.ndarray) -> str:
    lost = int((~np.isfinite(loss)).sum())
    return f"test loss (not finite in {lost} of {len(loss)} evaluated rounds)" if lost else "test loss"


def _shade_phases(axes: Axes, phases: Sequence[PhaseSpan]) -> None:
    for index, phase in enumerate(phases):
        colour = PHASE_COLOURS[index % len(PHASE_COLOURS)]
        axes.axvspan(phase.first_round - 0.5, phase.last_round + 0.5, color=colour, alpha=0.09, linewidth=0)
        if index:
            axes.axvline(phase.first_round - 0.5, color=colour, linewidth=1.0, linestyle="--")


def _name_phases(figure: Figure, axes: Axes, phases: Sequence[PhaseSpan]) -> None:
    """Writes the name of each phase above its first round, in a second or third row if names would touch."""
    figure.draw_without_rendering()
    frame = axes.get_window_extent()
    row_ends: list[float] = []
    for index, phase in enumerate(phases):
        label = axes.annotate(
            f"{phase.name} ({phase.schedule})",
            (phase.first_round - 0.5, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 4),
            textcoords="offset points",
            fontsize=10,
            parse_math=False,
            color=PHASE_COLOURS[index % len(PHASE_COLOURS)],
        )
        extent = label.get_window_extent()
        overhang = max(0.0, extent.x1 - frame.x1)
        start, end = extent.x0 - overhang, extent.x1 - overhang
        row = next((row for row, row_end in enumerate(row_ends) if row_end < start), len(row_ends))
        row_ends[row : row + 1] = [end + 8]
        label.xyann = (2 - overhang * 72 / figure.dpi, 4 + 13 * row)
