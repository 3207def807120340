"""Spread of gradients over clients and over batches: the quantities in the analysis of CyclicFL.

CyclicFL (second version), assumptions 2 to 4: sigma^2 = E ||grad l_i(w; batch) - grad L_i(w)||^2, and
(1/m) sum_i ||grad L_i(w) - grad L(w)||^2, bounded by beta^2 ||grad L(w)||^2 + zeta^2, where L is the mean of the L_i.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from matplotlib.figure import Figure
from pydantic import BeforeValidator, NonNegativeInt, PositiveInt

from rayfl.errors import ScenarioError
from rayfl.runs.figures.style import COLOURS
from rayfl.studies.analysis.analysis import Analysis, Open, Row, WorkUnit, by_run, listed, names_of, new_figure, tidy
from rayfl.studies.analysis.evaluator import Evaluator
from rayfl.studies.analysis.opened_run import OpenedRun
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.wording import counted

QUANTITIES = {
    "gradient_norm": "norm of the gradient",
    "client_spread": "spread of clients",
    "batch_spread": "spread of batches within clients",
}


class GradientSpread:
    """The gradients of clients at one model, added one client after another.

    Args:
        length: Length of a gradient.
    """

    def __init__(self, length: int) -> None:
        self._total, self._squares, self._around, self._loss, self._clients = np.zeros(length), 0.0, 0.0, 0.0, 0

    def add(self, evaluator: Evaluator, vector: np.ndarray, batch_size: int) -> None:
        """Adds a client, whose samples the evaluator has."""
        loss, own = evaluator.gradient(vector)
        self._total += own
        self._squares += float(own @ own)
        batches = list(evaluator.batch_gradients(vector, batch_size))
        weight = sum(weight for _, weight in batches)
        self._around += sum(weight * float(np.sum((one - own) ** 2)) for one, weight in batches) / weight
        self._loss, self._clients = self._loss + loss, self._clients + 1

    @property
    def loss(self) -> float:
        """L, the mean of the clients' mean losses."""
        return self._loss / self._clients

    @property
    def mean(self) -> np.ndarray:
        """grad L, float64 [length]."""
        return self._total / self._clients

    def row(self) -> Row:
        """Number of clients, and the three quantities; the spreads are squared distances."""
        norm = float(self.mean @ self.mean)
        return {
            "clients": self._clients,
            "gradient_norm": norm**0.5,
            "client_spread": max(0.0, self._squares / self._clients - norm),
            "batch_spread": self._around / self._clients,
        }


class OfModels(Analysis):
    """An analysis of kept models on the clients' training samples, with models as units.

    Attributes:
        rounds: Analyse the models after these rounds, 0 for the start; by default the start and the end of every phase.
        samples: Number of samples of each client; by default all.
    """

    rounds: Annotated[tuple[NonNegativeInt, ...], BeforeValidator(listed)] = ()
    samples: PositiveInt | None = None

    def units(self, runs: Sequence[RunFolder]) -> list[WorkUnit]:
        units = []
        for number, run in enumerate(runs):
            rounds = self.rounds_of(run)
            if beyond := [round for round in rounds if round > run.rounds]:
                raise ScenarioError(
                    f"rounds: the run '{run.path.name}' has {counted(run.rounds, 'round')}, not {beyond[0]}"
                )
            run.check_kept(rounds)
            units += [WorkUnit(number, f"run{number}-round{round}", (round,)) for round in rounds]
        return units

    def rounds_of(self, run: RunFolder) -> Sequence[int]:
        """The rounds whose models are analysed."""
        return self.rounds or tuple(dict.fromkeys([0, *run.last_rounds]))

    def evaluators(self, run: OpenedRun, round: int) -> Iterator[Evaluator]:
        """For a model, an evaluator on the samples of each client."""
        for client in range(run.plan.phases[run.folder.phase_of_model(round)].num_clients):
            yield Evaluator(run, round, self.samples, "train", client)


class Heterogeneity(OfModels):
    """Norm of the gradient, spread of clients' gradients around it, and spread of batches around their client.

    Gradients are on training samples without augmentation, in evaluation mode; all clients have the same weight.

    Attributes:
        batch_size: Batch size.
    """

    title: ClassVar[str] = "Heterogeneity of gradients"

    batch_size: PositiveInt = 32

    def cost(self, runs: Sequence[RunFolder], units: Sequence[WorkUnit]) -> str:
        clients = sum(runs[unit.run].clients for unit in units)
        return f"{counted(len(units), 'model')}, {2 * clients:,} passes over the samples of a client, with gradients"

    def compute(self, unit: WorkUnit, open: Open) -> list[Row]:
        run, (round,) = open(unit.run), unit.at
        vector, spread = run.vector(round), GradientSpread(run.workload(round).initial.num_params)
        for evaluator in self.evaluators(run, round):
            spread.add(evaluator, vector, self.batch_size)
        return [{"run": unit.run, "round": round, **spread.row()}]

    def draw(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> Figure:
        figure = new_figure(self.title, runs, 11, 4.4)
        panels = figure.subplots(1, len(QUANTITIES))
        rounds = sorted({row["round"] for row in rows})
        width = 0.8 / len(runs)
        for axes, (quantity, words) in zip(panels, QUANTITIES.items(), strict=True):
            for number, (name, own) in enumerate(zip(names_of(runs), by_run(rows, runs), strict=True)):
                places = [rounds.index(row["round"]) + (number - (len(runs) - 1) / 2) * width for row in own]
                axes.bar(
                    places, [row[quantity] for row in own], width, label=name, color=COLOURS[number % len(COLOURS)]
                )
            axes.set_xticks(range(len(rounds)), ["start" if round == 0 else str(round) for round in rounds])
            tidy(axes, "after round", "norm" if quantity == "gradient_norm" else "squared distance", words)
        if len(runs) > 1:
            panels[0].legend()
        return figure

    def findings(self, rows: Sequence[Mapping[str, Any]], runs: Sequence[RunFolder]) -> list[str]:
        names = names_of(runs)
        return [
            f"round {row['round']:<2} {names[row['run']]}: "
            + ", ".join(f"{words} {row[quantity]:.4g}" for quantity, words in QUANTITIES.items())
            for row in rows
        ]
