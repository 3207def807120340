"""The best convex combination of a round's local models: how much accuracy averaging leaves on the table.

FPS, section 6: the weights that minimise the test loss, an oracle rather than a method. The authors use SGD with a rate
of 1e-5 through a softmax, which hardly moves; here it is exponentiated gradient on all samples, from several starts.

Kivinen and Warmuth, "Exponentiated Gradient versus Gradient Descent for Linear Predictors", 1997: every weight is
multiplied by exp(-step * its partial derivative). The step doubles after a success and is halved until there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from pydantic import PositiveInt

from rayfl.errors import ScenarioError
from rayfl.streams import stream
from rayfl.studies.analysis.analysis import (
    BLUE,
    DARK,
    Open,
    Row,
    WorkUnit,
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
from rayfl.studies.analysis.replay import OfRounds, ReplayedRound, evaluator_of, replay_of
from rayfl.studies.analysis.run_folder import RunFolder

HALVINGS = 8
INTERIOR = 1e-3
"""Share of uniform weights mixed into a start, since a weight of 0 would stay 0."""

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""The value at some weights, and its gradient."""


def descend(objective: Objective, start: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
    """Minimises from a start; the value never increases.

    Args:
        objective: The function to minimise.
        start: [m] weights that add up to 1.
        steps: Largest number of successful steps.

    Returns:
        The weights found, and the value there.
    """
    weights = (1 - INTERIOR) * start + INTERIOR / len(start)
    value, gradient = objective(weights)
    step: float | None = None
    for _ in range(steps):
        inner = gradient - weights @ gradient
        largest = float(np.abs(inner).max())
        if largest == 0:
            break
        step = 1 / largest if step is None else 2 * step
        for _ in range(HALVINGS):
            tried = weights * np.exp(np.clip(-step * inner, -50, 50))
            tried /= tried.sum()
            below, there = objective(tried)
            if below < value:
                weights, value, gradient = tried, below, there
                break
            step /= 2
        else:
            break
    return weights, value


class Convex(OfRounds):
    """The best convex combination of every round's local models, never worse than the averaged model.

    Attributes:
        starts: Number of initial weights: those of the averaged model, equal ones, then random ones.
        steps: Steps of each search.
        throughout: Whether to use the best combination throughout training: the clients of the next round start from
            it, with the cohorts and random streams of the run. All rounds of a phase are then one unit.
    """

    draws_headline: ClassVar[bool] = True
    title: ClassVar[str] = "The best convex combination of a round's local models"

    starts: PositiveInt = 3
    steps: PositiveInt = 15
    throughout: bool = False

    def units(self, runs: Sequence[RunFolder]) -> list[WorkUnit]:
        units = super().units(runs)
        if not self.throughout:
            return units
        if self.rounds:
            raise ScenarioError("rounds: throughout trains all rounds of the last phase; leave rounds out")
        for run in runs:
            if run.scenario.phases[-1].schedule != "parallel":
                raise ScenarioError(f"throughout: the last phase of '{run.path}' is not parallel; leave throughout out")
        return [
            WorkUnit(number, f"run{number}-throughout", tuple(range(run.plans[-1].first_round, run.rounds + 1)))
            for number, run in enumerate(runs)
        ]

    def cost(self, runs: Sequence[RunFolder], units: Sequence[WorkUnit]) -> str:
        return super().cost(runs, [WorkUnit(unit.run, "", (round,)) for unit in units for round in unit.at])

    def evaluations(self, clients: float) -> float:
        return self.starts * (2 * self.steps + 1) + 2

    def compute(self, unit: WorkUnit, open: Open) -> list[Row]:
        if not self.throughout:
            return super().compute(unit, open)
        run, rows = open(unit.run), []
        replay, evaluator = replay_of(run), evaluator_of(run, unit.at[0], self.samples)
        model = run.received(unit.at[0])
        for round in unit.at:
            trained = replay.update(round, model)
            (row,), model = self._best(trained, evaluator, run)
            scores = evaluator.score(run.vector(round))  # of the run itself, which averaged
            rows.append(
                {"run": unit.run, "round": round} | row | {"averaged": scores.metric, "averaged_loss": scores.loss}
            )
        return rows

    def rows(self, replayed: ReplayedRound, evaluator: Evaluator, run: OpenedRun) -> list[Row]:
        return self._best(replayed, evaluator, run)[0]

    def _best(self, trained: ReplayedRound, evaluator: Evaluator, run: OpenedRun) -> tuple[list[Row], np.ndarray]:
        """The row of a round, and the best model."""
        parameters = run.workload(trained.round).initial.num_params
        local = trained.models[:, :parameters]

        def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
            loss, gradient = evaluator.gradient(trained.combined(weights))
            return loss, local @ gradient

        averaged = evaluator.score(trained.after)
        sign = 1 if run.folder.headline.higher_is_better else -1
        best, best_model, best_weights = averaged, trained.after, trained.weights
        for start in self._starts(trained, run.plan.scenario.seed):
            weights, _ = descend(objective, start, self.steps)
            model = trained.combined(weights)
            scores = evaluator.score(model)
            if (sign * scores.metric, -scores.loss) > (sign * best.metric, -best.loss):
                best, best_model, best_weights = scores, model, weights
        row = {
            "averaged": averaged.metric,
            "averaged_loss": averaged.loss,
            "best": best.metric,
            "best_loss": best.loss,
            "clients": list(trained.clients),
            "weights": best_weights.tolist(),
        }
        return [row], best_model

    def _starts(self, trained: ReplayedRound, seed: int) -> list[np.ndarray]:
        number = len(trained.clients)
        drawn = stream(seed, "analysis convex", trained.round).dirichlet(np.ones(number), self.starts)
        return [trained.weights, np.full(number, 1 / number), *drawn][: self.starts]

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        title = f"{self.title}{', used throughout training' if self.throughout else ''}"
        figure = new_figure(title, runs, max(6.4, 4.6 * len(runs)), 6)
        panels = figure.subplots(2, len(runs), sharex="col", sharey="row", squeeze=False)
        for number, (run, name, own) in enumerate(zip(runs, names_of(runs), by_run(rows, runs), strict=True)):
            rounds, style = [row["round"] for row in own], marker(len(own))
            for axes, ending in ((panels[0][number], ""), (panels[1][number], "_loss")):
                plain, best = ([row[f"{key}{ending}"] for row in own] for key in ("averaged", "best"))
                axes.plot(rounds, plain, color=DARK, label="averaged model", **style)
                axes.plot(rounds, best, color=BLUE, label="best combination", **style)
            tidy(panels[0][number], ylabel="" if number else run.headline.reported_words, title=name)
            tidy(panels[1][number], "round", "" if number else "test loss", whole_x=True)
            as_share(panels[0][number], run.headline)
            for axes in panels[:, number]:
                mark_phases(axes, run)
        for axes in panels[:, 0]:
            axes.legend()
        return figure

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        lines = []
        for run, name, own in zip(runs, names_of(runs), by_run(rows, runs), strict=True):
            gap = float(np.mean([row["best"] - row["averaged"] for row in own]))
            lines.append(
                f"gap      {name}: {run.headline.reported_words} of the best combination {gap:+.4f}, on average"
            )
        return lines
