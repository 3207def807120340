"""A dot for every client: its score among all, and against its number of samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

import rayfl
from rayfl.runs.figures.client_scores import ClientScores
from rayfl.runs.figures.panels import DrawnCurve, Panel, draw
from rayfl.runs.figures.quantities import Quantity, Series
from rayfl.runs.figures.style import DOTS, line_style

RANK, BY_SCORE = Quantity("client, from the worst to the best"), Quantity("client, by its score")
SAMPLES = Quantity("samples of the client")


def dot_panels(
    title: str, lines: Mapping[str, tuple[np.ndarray, np.ndarray]], y: Quantity, higher_is_better: bool | None
) -> list[Panel]:
    """Two panels: clients sorted by their scores, and scores over numbers of samples.

    Args:
        title: Above both.
        lines: Scores and numbers of samples of clients, float64 [n] each, by label.
        y: What the scores are.
        higher_is_better: Their direction; None if it is not known.
    """
    ranked, by_size = [], []
    for label, (scores, samples) in lines.items():
        known = ~np.isnan(scores)
        scores, samples = scores[known], samples[known].astype(np.float64)
        if not len(scores):
            continue
        ascending = -np.sort(-scores) if higher_is_better is False else np.sort(scores)
        ranked.append(_dots(label, np.arange(1.0, len(scores) + 1), ascending))
        order = np.argsort(samples, kind="stable")
        by_size.append(_dots(label, samples[order], scores[order]))
    rank = BY_SCORE if higher_is_better is None else RANK
    panels = [Panel(title, rank, y, tuple(ranked)), Panel(title, SAMPLES, y, tuple(by_size))]
    return [panel for panel in panels if panel.lines]


def _dots(label: str, x: np.ndarray, y: np.ndarray) -> DrawnCurve:
    return DrawnCurve(label, Series(x, y, y, y, 1))


def dots_of(scores: ClientScores) -> Figure:
    """Draws the headline metric of a run's clients with the current parameters of matplotlib."""
    label, metric = scores.set.replace("_", " "), scores.headline.metric
    panels = dot_panels(
        "", {label: (scores.values, scores.samples)}, scores.quantity(metric), scores.headline.higher_is_better
    )
    caption = f"{len(scores.ranking):,} clients after round {scores.round}; rayfl\N{NO-BREAK SPACE}{rayfl.__version__}"
    return draw(panels, {label: line_style(0)._replace(dash=DOTS)}, caption, "page")
