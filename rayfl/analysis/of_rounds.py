"""Base class of analyses of single rounds, which replay client updates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache

from pydantic import PositiveInt

from rayfl.analysis.analysis import Analysis, Open, Rounds, Row, Unit
from rayfl.analysis.evaluator import Evaluator
from rayfl.analysis.opened_run import OpenedRun
from rayfl.analysis.replay import ReplayedRound, replay_of, replayable_rounds
from rayfl.analysis.run_folder import RunFolder
from rayfl.planning.cohort import expected_cohort_size


class OfRounds(Analysis):
    """An analysis with rounds as units.

    Attributes:
        rounds: Rounds to analyse, counted from 1 through the whole scenario; by default all of parallel phases.
        samples: Number of test samples for scoring models; by default all test samples of the run.
    """

    rounds: Rounds = ()
    samples: PositiveInt | None = None

    def units(self, runs: Sequence[RunFolder]) -> list[Unit]:
        return [
            Unit(number, f"run{number}-round{round}", (round,))
            for number, run in enumerate(runs)
            for round in replayable_rounds(run, self.rounds)
        ]

    def cost(self, runs: Sequence[RunFolder], units: Sequence[Unit]) -> str:
        clients = [self._clients(runs[unit.run], unit.at[0]) for unit in units]
        evaluated = min(self.samples or 10**18, *(run.environment["data"]["evaluated_samples"] for run in runs))
        evaluations = round(sum(map(self.evaluations, clients)))
        return (
            f"{len(units)} rounds with {round(sum(clients)):,} client updates to replay, "
            f"{evaluations:,} evaluations of {evaluated:,} samples"
        )

    @abstractmethod
    def evaluations(self, clients: float) -> float:
        """Number of evaluations of a round, given its number of clients."""

    def compute(self, unit: Unit, open: Open) -> list[Row]:
        run = open(unit.run)
        replayed = replay_of(run).round(unit.at[0])
        named = {"run": unit.run, "round": replayed.round}
        return [named | row for row in self.rows(replayed, evaluator_of(run, replayed.round, self.samples), run)]

    @abstractmethod
    def rows(self, replayed: ReplayedRound, evaluator: Evaluator, run: OpenedRun) -> list[Row]:
        """The rows for the models of a round."""

    @staticmethod
    def _clients(run: RunFolder, round: int) -> float:
        return expected_cohort_size(run.plans[run.index(round).phase].phase, run.clients)


@cache
def _evaluator(run: OpenedRun, phase: int, round: int, samples: int | None, on: str) -> Evaluator:
    return Evaluator(run, round, samples, on)


def evaluator_of(run: OpenedRun, round: int, samples: int | None, on: str = "test") -> Evaluator:
    """An evaluator for the models of a round, made once per phase and process."""
    phase = run.folder.phase_of_model(round)
    first = run.folder.plans[phase].first_round
    return _evaluator(run, phase, first, samples, on)
