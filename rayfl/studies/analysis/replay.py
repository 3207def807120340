"""Replays a round of a finished run, to get the clients' models, which runs do not store, from the kept global model.

The client updates run again and are aggregated again; the result must be bitwise equal to the next kept model, since
otherwise the clients' models would not be those of the run. `OfRounds` is the base class of analyses that do so.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from pydantic import PositiveInt

from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.server_state import ServerState
from rayfl.config.cohort import BySampler
from rayfl.engine.assignment import grouped
from rayfl.engine.host import Host
from rayfl.engine.plan.cohort import cohort_of, expected_cohort_size
from rayfl.engine.plan.headline import comparable_phases
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.reduction import HostAnswers, Reduction
from rayfl.engine.server_round import ServerRound
from rayfl.errors import DataError, ScenarioError
from rayfl.local.steps import typical, update_steps
from rayfl.studies.analysis.analysis import Analysis, Open, Rounds, Row, WorkUnit
from rayfl.studies.analysis.evaluator import Evaluator
from rayfl.studies.analysis.opened_run import OpenedRun
from rayfl.studies.analysis.run_folder import RunFolder
from rayfl.wording import counted


@dataclass(frozen=True)
class ReplayedRound:
    """A replayed round.

    Attributes:
        round: Its number, from 1.
        clients: The participants, ascending.
        weights: float64 [clients], their weights in the mean, which add up to 1.
        before: float32 [length of the model], the model that the clients received.
        models: float32 [clients, length of the model], the models that they trained.
        after: float32 [length of the model], the aggregated model.
    """

    round: int
    clients: tuple[int, ...]
    weights: np.ndarray
    before: np.ndarray
    models: np.ndarray
    after: np.ndarray

    def combined(self, weights: np.ndarray) -> np.ndarray:
        """float32 [length of the model]: a combination of the clients' models, including buffers."""
        return (weights @ self.models.astype(np.float64)).astype(np.float32)


def replayable_rounds(folder: RunFolder, wanted: Sequence[int] = ()) -> list[int]:
    """The wanted rounds, or by default those of all parallel phases, after checking that they can be replayed.

    Only phases whose metric ranks the run count: scores of others are not comparable.

    Raises:
        ScenarioError: The run has no such round, or its phase cannot be replayed or has other metrics.
        DataError: A required model was not kept.
    """
    if beyond := [round for round in wanted if not 1 <= round <= folder.rounds]:
        raise ScenarioError(f"rounds: the run '{folder.path.name}' has rounds 1 to {folder.rounds}, not {beyond[0]}")
    phases = folder.scenario.phases
    ranked = comparable_phases(folder.scenario, phases[-1]) or [phase.name for phase in phases]
    rounds = list(wanted)
    if not rounds:
        parallel = {
            plan.number for plan in folder.plans if plan.phase.schedule == "parallel" and plan.phase.name in ranked
        }
        rounds = [round for round in range(1, folder.rounds + 1) if folder.index(round).phase in parallel]
    if not rounds:
        raise ScenarioError(f"'{folder.path}': it has no parallel phase, and only their rounds have local models")
    folder.check_drawn()
    for plan in [folder.plans[number] for number in {folder.index(round).phase for round in rounds}]:
        check_replayable(plan)
        if plan.phase.name not in ranked:
            raise ScenarioError(
                f"rounds: '{plan.phase.name}' has another task or metric than '{ranked[-1]}', which ranks the run; "
                "choose rounds of other phases"
            )
    folder.check_kept([number for round in rounds for number in (round - 1, round)])
    return sorted(rounds)


def check_replayable(plan: PhasePlan) -> None:
    """Checks that the options of a phase let its rounds depend on kept models alone.

    Raises:
        ScenarioError: They do not; names the part of the phase that prevents it.
    """
    phase, where = plan.phase, f"phases.{plan.phase.name}"
    if phase.schedule != "parallel":
        raise ScenarioError(f"{where}: its rounds have no local models to aggregate ({phase.schedule}); choose others")
    if phase.local.dp is not None and phase.local.dp.secure:
        raise ScenarioError(f"{where}.local.dp: 'secure' noise cannot be drawn again; run it without secure")
    if phase.settings.dp is not None:
        why = "'secure' noise cannot be drawn again" if phase.settings.dp.secure else "it only reveals sums of clients"
        raise ScenarioError(f"{where}.dp: {why}; run it without dp")
    if plan.evaluated.rule != "global":
        raise ScenarioError(
            f"{where}.eval_model: kept models are '{plan.evaluated.rule}' ones, but clients started from others; run "
            "it with eval_model = 'global'"
        )
    if isinstance(phase.settings.cohort, BySampler):
        raise ScenarioError(f"{where}.cohort: a sampler's cohort cannot be drawn again; use a share or a number")


def check_answers(plan: PhasePlan) -> None:
    """Checks that nothing but the model passes from round to round, and that clients answer with their changes.

    Raises:
        ScenarioError: As `check_replayable`.
    """
    where, name = f"phases.{plan.phase.name}", plan.phase.algorithm.name
    stateful = {**plan.client_state, **plan.server_state}
    if persistent := [state for state, scope in stateful.items() if scope not in ("exchange", "round")]:
        raise ScenarioError(
            f"{where}: '{name}' keeps state from round to round ({', '.join(sorted(persistent))}), which the run "
            "did not store; analyse a run without such state (fedavg, fedprox)"
        )
    if plan.asked != ("cohort",) or "delta" not in plan.sent_vectors:
        raise ScenarioError(
            f"{where}: in a round of '{name}' clients do more than answer once with a change of the model; analyse a "
            "run of fedavg or fedprox"
        )


class Replay:
    """Replays rounds of one run, in this process.

    Args:
        run: The run.
    """

    def __init__(self, run: OpenedRun) -> None:
        self._run, run_plan = run, run.plan
        self._host = Host(0, run_plan)
        self._plans = run_plan.phases

    def round(self, number: int) -> ReplayedRound:
        """Replays a round.

        Raises:
            DataError: The result differs from that of the run; describes the difference.
        """
        replayed = self.update(number, self._run.received(number))
        recorded = self._run.vector(number)
        if not np.array_equal(replayed.after, recorded):
            raise DataError(self._difference(replayed, recorded))
        return replayed

    def update(self, number: int, model: np.ndarray) -> ReplayedRound:
        """Runs and aggregates the client updates of a round from any model, with its cohort and random streams."""
        run, scenario = self._run, self._run.plan.scenario
        index = run.folder.index(number)
        plan, workload = self._plans[index.phase], run.plan.workloads[index.phase]
        check_answers(plan)
        sizes = workload.population.sizes
        cohort = cohort_of(plan.phase, scenario.seed, index, sizes)
        state = ServerState(np.array(model), workload.initial.num_params, len(sizes), declared=dict(plan.server_state))
        server = ServerRound(scenario, plan, index, state)
        exchange = server.begin(cohort)
        singly = copy.copy(exchange)
        singly.each = True
        trained = plan.algorithm.training_sizes(sizes[np.asarray(cohort)])
        steps = [update_steps(typical(plan.phase.local), int(size)) for size in trained]
        answers, _ = self._host.answer(index, grouped(cohort, steps, scenario.numerics.clients_at_once), singly)
        server.receive([answers if exchange.each else _summed(answers, scenario.numerics.fraction_bits)])
        ordered = sorted(answers.each, key=lambda one: one.client)
        weights = np.array([one.weight for one in ordered])
        return ReplayedRound(
            number,
            tuple(one.client for one in ordered),
            weights / weights.sum(),
            np.array(model),
            np.stack([model + one.vectors["delta"] for one in ordered]),
            server.state.model,
        )

    def _difference(self, replayed: ReplayedRound, recorded: np.ndarray) -> str:
        off = np.abs(replayed.after.astype(np.float64) - recorded)
        slots = self._run.workload(replayed.round).initial.layout
        first = next((slot.name for slot in slots if off[slot.offset : slot.end].any()), "")
        there, here = self._run.folder.environment["hosts"][0], self._host.describe()
        others = [f"{key} {there.get(key)}, here {here[key]}" for key in here if there.get(key) != here[key]]
        others = [text for text in others if not text.startswith(("host ", "node "))]
        return (
            f"'{self._run.folder.path}': replaying round {replayed.round} gives another model: "
            f"{np.count_nonzero(off)} of {len(off)} values differ, by up to "
            f"{off.max():.3g}, first in '{first}'; analyse the run where it ran"
            + (f" ({'; '.join(others)})" if others else "")
        )


@cache
def replay_of(run: OpenedRun) -> Replay:
    """The replay of a run, made once per process because it builds the networks."""
    return Replay(run)


def _summed(answers: HostAnswers, fraction_bits: int) -> HostAnswers:
    """Sums single answers as the host would have: exactly, hence in any order."""
    reduction = Reduction(fraction_bits)
    for one in answers.each:
        vectors = {name: torch.from_numpy(vector) for name, vector in one.vectors.items()}
        answer = Answer(one.weight)
        answer.values = vectors
        reduction.add(one.client, answer)
    return replace(reduction.result(), sums=answers.sums, maxima=answers.maxima)


class OfRounds(Analysis):
    """An analysis with rounds as units.

    Attributes:
        rounds: Rounds to analyse, counted from 1 through the whole scenario; by default all of parallel phases.
        samples: Number of test samples for scoring models; by default all test samples of the run.
    """

    rounds: Rounds = ()
    samples: PositiveInt | None = None

    def units(self, runs: Sequence[RunFolder]) -> list[WorkUnit]:
        return [
            WorkUnit(number, f"run{number}-round{round}", (round,))
            for number, run in enumerate(runs)
            for round in replayable_rounds(run, self.rounds)
        ]

    def cost(self, runs: Sequence[RunFolder], units: Sequence[WorkUnit]) -> str:
        planned = [(runs[unit.run], runs[unit.run].index(unit.at[0])) for unit in units]
        clients = [expected_cohort_size(run.plans[index.phase].phase, run.clients) for run, index in planned]
        evaluated = min(self.samples or 10**18, *(run.environment["data"]["evaluated_samples"] for run in runs))
        evaluations = round(sum(map(self.evaluations, clients)))
        return (
            f"{counted(len(units), 'round')} with {counted(round(sum(clients)), 'client update')} to replay, "
            f"{counted(evaluations, 'evaluation')} of {counted(evaluated, 'sample')}"
        )

    @abstractmethod
    def evaluations(self, clients: float) -> float:
        """Number of evaluations of a round, given its number of clients."""

    def compute(self, unit: WorkUnit, open: Open) -> list[Row]:
        run = open(unit.run)
        replayed = replay_of(run).round(unit.at[0])
        named = {"run": unit.run, "round": replayed.round}
        return [named | row for row in self.rows(replayed, evaluator_of(run, replayed.round, self.samples), run)]

    @abstractmethod
    def rows(self, replayed: ReplayedRound, evaluator: Evaluator, run: OpenedRun) -> list[Row]:
        """The rows for the models of a round."""


@cache
def _evaluator(run: OpenedRun, phase: int, round: int, samples: int | None, on: str) -> Evaluator:
    return Evaluator(run, round, samples, on)


def evaluator_of(run: OpenedRun, round: int, samples: int | None, on: str = "test") -> Evaluator:
    """An evaluator for the models of a round, made once per phase and process."""
    phase = run.folder.phase_of_model(round)
    first = run.folder.plans[phase].first_round
    return _evaluator(run, phase, first, samples, on)
