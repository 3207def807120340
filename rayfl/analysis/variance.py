"""Dependence of a round's test loss on the weights that combine its local models.

FPS, section 6: weights drawn from the simplex, here uniformly (Dirichlet(1, ..., 1)), and the loss of each combination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from rayfl.analysis.analysis import Rounds, Row, by_run
from rayfl.analysis.evaluator import Evaluator
from rayfl.analysis.of_rounds import OfRounds
from rayfl.analysis.opened_run import OpenedRun
from rayfl.analysis.picture import COLOURS, DARK, mark_phases, marker, names_of, new_figure, tidy
from rayfl.analysis.replay import ReplayedRound
from rayfl.analysis.run_folder import RunFolder
from rayfl.streams import stream

AVERAGED = -1
"""Instead of a draw: the averaged model."""


class Variance(OfRounds):
    """The test loss over random convex combinations of a round's local models.

    Attributes:
        weights: Number of combinations of each round; the paper has 300, its appendix 100.
        histograms: Rounds with a histogram of losses; by default the first and the last.
    """

    title: ClassVar[str] = "Test loss of random convex combinations of a round's local models"

    weights: Annotated[int, Field(ge=2)] = 300
    histograms: Rounds = ()

    def evaluations(self, clients: float) -> float:
        return self.weights + 1

    def rows(self, replayed: ReplayedRound, evaluator: Evaluator, run: OpenedRun) -> list[Row]:
        rng = stream(run.job.scenario.seed, "analysis simplex", replayed.round)
        drawn = rng.dirichlet(np.ones(len(replayed.clients)), self.weights)
        models = [(AVERAGED, replayed.after), *enumerate(map(replayed.combined, drawn))]
        found = [(draw, evaluator.score(model)) for draw, model in models]
        return [{"draw": draw, "loss": scores.loss, "metric": scores.metric} for draw, scores in found]

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        by_rounds = [_by_round(own) for own in by_run(rows, runs)]
        chosen = self._histograms(by_rounds)
        columns = max(len(runs), len(chosen))
        figure = new_figure(self.title, runs, max(7.0, 4.2 * columns), 6.4)
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.15, 1)).flat
        panels = upper.subplots(1, len(runs), sharey=True, squeeze=False)[0]
        for number, (axes, run, name, found) in enumerate(zip(panels, runs, names_of(runs), by_rounds, strict=True)):
            rounds, colour = list(found), COLOURS[number % len(COLOURS)]
            low, high = np.percentile([found[round][1] for round in rounds], [2.5, 97.5], axis=1)
            style = marker(len(rounds))
            if len(rounds) > 1:
                axes.fill_between(
                    rounds, low, high, color=colour, alpha=0.25, linewidth=0, label="95 % of combinations"
                )
            else:
                axes.vlines(rounds, low, high, color=colour, alpha=0.5, linewidth=6, label="95 % of combinations")
            axes.plot(rounds, [found[round][1].mean() for round in rounds], color=colour, label="their mean", **style)
            axes.plot(
                rounds, [found[round][0] for round in rounds], color=DARK, ls="--", label="averaged model", **style
            )
            tidy(axes, "round", "" if number else "test loss", name, whole_x=True)
            mark_phases(axes, run)
        panels[0].legend(fontsize=9, framealpha=0.9)
        if chosen:
            self._draw_histograms(lower, chosen, by_rounds, names_of(runs))
        return figure

    def _histograms(self, by_rounds: Sequence[Mapping[int, tuple[float, np.ndarray]]]) -> list[int]:
        rounds = sorted({round for found in by_rounds for round in found})
        shared = [round for round in rounds if all(round in found for found in by_rounds)] or rounds
        return [round for round in self.histograms or dict.fromkeys((shared[0], shared[-1])) if round in rounds]

    def _draw_histograms(self, figure: Any, chosen: Sequence[int], by_rounds: Any, names: Sequence[str]) -> None:
        panels = figure.subplots(1, len(chosen), squeeze=False)[0]
        for axes, round in zip(panels, chosen, strict=True):
            losses = [(number, found[round][1]) for number, found in enumerate(by_rounds) if round in found]
            bins = np.histogram_bin_edges(np.concatenate([own for _, own in losses]), max(8, self.weights // 10))
            for number, own in losses:
                axes.hist(own, bins, color=COLOURS[number % len(COLOURS)], alpha=0.55, label=names[number])
            if len(names) > 1:
                axes.legend(fontsize=9, framealpha=0.9)
            tidy(axes, "test loss", "combinations" if axes is panels[0] else "", f"round {round}")

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        found = []
        for name, own in zip(names_of(runs), by_run(rows, runs), strict=True):
            spread = np.mean([losses.std() for _, losses in _by_round(own).values()])
            found.append(f"spread   {name}: standard deviation of the loss {spread:.4g}, on average over the rounds")
        return found


def _by_round(rows: Sequence[Mapping[str, Any]]) -> dict[int, tuple[float, np.ndarray]]:
    """The loss of the averaged model and those of the combinations, by round."""
    losses: dict[int, list[float]] = {}
    averaged: dict[int, float] = {}
    for row in rows:
        if row["draw"] == AVERAGED:
            averaged[row["round"]] = row["loss"]
        else:
            losses.setdefault(row["round"], []).append(row["loss"])
    return {round: (averaged[round], np.array(own)) for round, own in sorted(losses.items())}
