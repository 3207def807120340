"""What averaging does in a round: the gains of local training and of aggregation, and how the weights matter.

FPS, section 6: A(mean_t) = A(mean_(t-1)) + [sum_m p_m A(local_m) - A(mean_(t-1))] + [A(mean_t) - sum_m p_m A(local_m)],
with the local and the global gain in brackets. A negative local gain means that clients drift. And the loss of convex
combinations of the local models, with weights drawn from the simplex, here uniformly (Dirichlet(1, ..., 1)).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from rayfl.runs.figures.style import COLOURS
from rayfl.streams import stream
from rayfl.studies.analysis.analysis import (
    BLUE,
    DARK,
    ORANGE,
    Rounds,
    Row,
    as_share,
    by_run,
    mark_phases,
    marker,
    names_of,
    new_figure,
    tidy,
)
from rayfl.studies.analysis.evaluator import Evaluator
from rayfl.studies.analysis.opened_run import OpenedRun
from rayfl.studies.analysis.replay import OfRounds, ReplayedRound
from rayfl.studies.analysis.run_folder import RunFolder


class Gains(OfRounds):
    """Local and global gain of every round."""

    draws_headline: ClassVar[bool] = True
    title: ClassVar[str] = "Gains of local training and aggregation in a round"

    def evaluations(self, clients: float) -> float:
        return clients + 2

    def rows(self, replayed: ReplayedRound, evaluator: Evaluator, run: OpenedRun) -> list[Row]:
        before, after = evaluator.score(replayed.before), evaluator.score(replayed.after)
        each = [evaluator.score(model) for model in replayed.models]
        local = sum(weight * one.metric for weight, one in zip(replayed.weights, each, strict=True))
        return [
            {
                "before": before.metric,
                "mean_local": float(local),
                "after": after.metric,
                "local_gain": float(local - before.metric),
                "global_gain": float(after.metric - local),
                "loss_before": before.loss,
                "mean_local_loss": float(sum(w * one.loss for w, one in zip(replayed.weights, each, strict=True))),
                "loss_after": after.loss,
                "clients": len(each),
            }
        ]

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        figure = new_figure(self.title, runs, max(6.4, 4.6 * len(runs)), 6)
        panels = figure.subplots(2, len(runs), sharex="col", sharey="row", squeeze=False)
        for number, (run, name, own) in enumerate(zip(runs, names_of(runs), by_run(rows, runs), strict=True)):
            upper, lower = panels[0][number], panels[1][number]
            rounds, style = [row["round"] for row in own], marker(len(own))
            upper.plot(rounds, [row["after"] for row in own], color=DARK, label="averaged model", **style)
            upper.plot(rounds, [row["mean_local"] for row in own], color=ORANGE, label="mean of local models", **style)
            lower.plot(rounds, [row["local_gain"] for row in own], color=ORANGE, label="local gain", **style)
            lower.plot(rounds, [row["global_gain"] for row in own], color=BLUE, label="global gain", **style)
            lower.axhline(0, color=DARK, linewidth=0.8)
            tidy(upper, ylabel="" if number else run.headline.reported_words, title=name)
            tidy(lower, "round", "" if number else _gain_words(run), whole_x=True)
            as_share(upper, run.headline)
            as_share(lower, run.headline, signed=True)
            mark_phases(upper, run)
            mark_phases(lower, run)
        panels[0][0].legend()
        panels[1][0].legend()
        return figure

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        lines = []
        for name, own in zip(names_of(runs), by_run(rows, runs), strict=True):
            local, whole = (sum(row[key] for row in own) / len(own) for key in ("local_gain", "global_gain"))
            lines.append(f"gains    {name}: mean local gain per round {local:+.4f}, global gain {whole:+.4f}")
        return lines


def _gain_words(run: RunFolder) -> str:
    return "gain in percentage points" if run.headline.is_share else f"gain in {run.headline.reported_words}"


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
        rng = stream(run.plan.scenario.seed, "analysis simplex", replayed.round)
        drawn = rng.dirichlet(np.ones(len(replayed.clients)), self.weights)
        models = [(AVERAGED, replayed.after), *enumerate(map(replayed.combined, drawn))]
        scored = [(draw, evaluator.score(model)) for draw, model in models]
        return [{"draw": draw, "loss": scores.loss, "metric": scores.metric} for draw, scores in scored]

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        by_rounds = [_by_round(own) for own in by_run(rows, runs)]
        chosen = self._histograms(by_rounds)
        columns = max(len(runs), len(chosen))
        figure = new_figure(self.title, runs, max(7.0, 4.2 * columns), 6.4)
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.15, 1)).flat
        panels = upper.subplots(1, len(runs), sharey=True, squeeze=False)[0]
        for number, (axes, run, name, by_round) in enumerate(zip(panels, runs, names_of(runs), by_rounds, strict=True)):
            rounds, colour = list(by_round), COLOURS[number % len(COLOURS)]
            low, high = np.percentile([by_round[round][1] for round in rounds], [2.5, 97.5], axis=1)
            style = marker(len(rounds))
            if len(rounds) > 1:
                axes.fill_between(
                    rounds, low, high, color=colour, alpha=0.25, linewidth=0, label="95 % of combinations"
                )
            else:
                axes.vlines(rounds, low, high, color=colour, alpha=0.5, linewidth=6, label="95 % of combinations")
            axes.plot(
                rounds, [by_round[round][1].mean() for round in rounds], color=colour, label="their mean", **style
            )
            axes.plot(
                rounds, [by_round[round][0] for round in rounds], color=DARK, ls="--", label="averaged model", **style
            )
            tidy(axes, "round", "" if number else "test loss", name, whole_x=True)
            axes.title.set_color(colour)
            mark_phases(axes, run)
        panels[0].legend()
        if chosen:
            self._draw_histograms(lower, chosen, by_rounds)
        return figure

    def _histograms(self, by_rounds: Sequence[Mapping[int, tuple[float, np.ndarray]]]) -> list[int]:
        rounds = sorted({round for by_round in by_rounds for round in by_round})
        shared = [round for round in rounds if all(round in by_round for by_round in by_rounds)] or rounds
        return [round for round in self.histograms or dict.fromkeys((shared[0], shared[-1])) if round in rounds]

    def _draw_histograms(self, figure: Any, chosen: Sequence[int], by_rounds: Any) -> None:
        panels = figure.subplots(1, len(chosen), squeeze=False)[0]
        for axes, round in zip(panels, chosen, strict=True):
            losses = [(number, by_round[round][1]) for number, by_round in enumerate(by_rounds) if round in by_round]
            bins = np.histogram_bin_edges(np.concatenate([own for _, own in losses]), max(8, self.weights // 10))
            for number, own in losses:  # in the colours of the titles above
                axes.hist(own, bins, color=COLOURS[number % len(COLOURS)], alpha=0.55)
            tidy(axes, "test loss", "combinations" if axes is panels[0] else "", f"round {round}")

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        lines = []
        for name, own in zip(names_of(runs), by_run(rows, runs), strict=True):
            spread = np.mean([losses.std() for _, losses in _by_round(own).values()])
            lines.append(f"spread   {name}: standard deviation of the loss {spread:.4g}, on average over the rounds")
        return lines


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
