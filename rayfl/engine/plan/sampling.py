"""Draws the cohorts of a run, round by round, and keeps what samplers need meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rayfl.algorithms.sampler import CohortSampler, SamplingContext
from rayfl.config.cohort import BySampler, BySize
from rayfl.config.scenario import Scenario
from rayfl.config.section import check_plain
from rayfl.data.split_facts import main_classes
from rayfl.engine.plan.cohort import MANY, cohort_of, in_order
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.workload import Population, Workload
from rayfl.engine.totals import UpdateReport
from rayfl.errors import RayflError, ScenarioError
from rayfl.interruption import is_of_user_code
from rayfl.streams import stream
from rayfl.wording import report_as_theirs


def population_of(plan: PhasePlan, workload: Workload) -> Population:
    """The facts about the clients that the scheduler needs in a phase, with their classes if its sampler reads them.

    Raises:
        ScenarioError: The sampler reads classes, and labels are not classes; or as `Workload.population`.
    """
    if plan.sampler is None or not plan.sampler.reads_labels:
        return workload.population
    if (labels := main_classes(workload.store)) is None:
        raise ScenarioError(
            f"phases.{plan.phase.name}.cohort: its sampler reads the clients' classes, and labels of this data are not "
            f"classes; use another cohort, or data.labels_by"
        )
    return replace(workload.population, labels=labels)


@dataclass(frozen=True)
class SamplingSnapshot:
    """The state after a committed round on which later cohorts depend, as plain data.

    Attributes:
        phase: The round's phase.
        last_client: The last client of its cohort.
        state: The state of the phase's sampler.
        scalars: The latest reported scalars by client in this phase; empty unless its sampler reads them.
    """

    phase: int = 0
    last_client: int | None = None
    state: dict[str, Any] = field(default_factory=dict)
    scalars: dict[int, dict[str, float]] = field(default_factory=dict)


class Sampling:
    """Draws the cohorts of a run; ahead of commits, unless the phase's sampler reads scalars.

    Args:
        scenario: The run's scenario.
        plans: Its phases, with their clients.
    """

    def __init__(self, scenario: Scenario, plans: Sequence[PhasePlan]) -> None:
        self._scenario, self._plans = scenario, plans
        self.restore(SamplingSnapshot())

    def restore(self, snapshot: SamplingSnapshot) -> None:
        """Continues after the round of a snapshot."""
        self._kept, self._drawn = snapshot, {0: snapshot}

    def snapshot(self) -> SamplingSnapshot:
        """The state after the last committed round."""
        return deepcopy(self._kept)

    def draw(self, index: RoundIndex) -> list[int]:
        """Draws the clients of a round, in the order in which a relay trains them.

        Raises:
            RayflError: A user's sampler raised, or did not return a valid cohort.
        """
        phase, population = index.config(self._scenario), self._plans[index.phase].population
        sizes, before = population.sizes, self._drawn[max(self._drawn)]
        state = deepcopy(before.state) if before.phase == index.phase else {}
        sampler = self._plans[index.phase].sampler
        if sampler is None:
            ends = population.ends if isinstance(phase.settings.cohort, BySize) and len(sizes) > MANY else None
            cohort = cohort_of(phase, self._scenario.seed, index, sizes, before.last_client, ends)
        else:
            cohort = in_order(phase, self._asked(sampler, index, population, state))
        self._drawn[index.round] = SamplingSnapshot(index.phase, cohort[-1] if cohort else None, state)
        return cohort

    def commit(self, index: RoundIndex, reports: Iterable[UpdateReport]) -> None:
        """Keeps the state that a committed round left."""
        committed = self._drawn[max(round for round in self._drawn if round <= index.round)]
        scalars = self._scalars_before(index)
        if (sampler := self._plans[index.phase].sampler) and sampler.reads_scalars:
            for client, reported in reported_scalars(reports, with_loss=True).items():
                scalars[client] = scalars.get(client, {}) | reported
        self._kept = SamplingSnapshot(committed.phase, committed.last_client, committed.state, scalars)
        later = {round: drawn for round, drawn in self._drawn.items() if round > index.round}
        self._drawn = {index.round: committed} | later

    def _scalars_before(self, index: RoundIndex) -> dict[int, dict[str, float]]:
        return dict(self._kept.scalars) if self._kept.phase == index.phase else {}

    def _asked(
        self, sampler: CohortSampler, index: RoundIndex, population: Population, state: dict[str, Any]
    ) -> list[int]:
        chosen = index.config(self._scenario).settings.cohort
        assert isinstance(chosen, BySampler)
        who = f"sampler '{chosen.sampler}'"
        context = SamplingContext(
            index.round,
            index.round_in_phase,
            _read_only(population.sizes),
            stream(self._scenario.seed, "cohort", index.phase, index.round),
            deepcopy(self._scalars_before(index)) if sampler.reads_scalars else {},
            state,
            None if population.labels is None else _read_only(population.labels),
        )
        try:
            drawn: Any = sampler.draw(context)
        except RayflError:
            raise
        except BaseException as error:  # a user's sampler may raise anything
            if not is_of_user_code(error):
                raise
            raise RayflError(report_as_theirs(error, f"{who}: draw() for round {index.round}")) from None
        try:
            check_plain(state)
        except ValueError as error:
            raise RayflError(f"{who}: its state after round {index.round} is not plain data: {error}") from None
        return _checked(drawn, len(population.sizes), f"{who}: draw() for round {index.round}")


def _read_only(array: np.ndarray) -> np.ndarray:
    shown = array.view()
    shown.setflags(write=False)
    return shown


def _checked(drawn: Any, num_clients: int, who: str) -> list[int]:
    """Checks a sampler's cohort and converts it to ints."""
    if not isinstance(drawn, list | tuple | np.ndarray):
        raise RayflError(f"{who} must return a list of client numbers, not a {type(drawn).__name__}")
    clients: dict[int, None] = {}  # in order
    for client in drawn:
        if isinstance(client, bool | np.bool_) or not isinstance(client, int | np.integer):
            raise RayflError(f"{who} must return a list of client numbers; {client!r} is a {type(client).__name__}")
        if not 0 <= client < num_clients:
            raise RayflError(f"{who} returned client {client}; clients are 0 to {num_clients - 1}")
        if int(client) in clients:
            raise RayflError(f"{who} returned client {client} twice")
        clients[int(client)] = None
    if not clients:
        raise RayflError(f"{who} returned no client; a round needs at least one")
    return list(clients)


def reported_scalars(reports: Iterable[UpdateReport], with_loss: bool = False) -> dict[int, dict[str, float]]:
    """Scalars that clients reported in a round, by client, over all of its exchanges.

    Args:
        reports: The reports of the round's calls, in order.
        with_loss: Whether to add `train_loss`, the mean loss over the client's steps, if it took any.
    """
    by_client: dict[int, dict[str, float]] = {}
    losses: dict[int, list[tuple[float, int]]] = {}
    for report in reports:
        for client, scalars in report.scalars.items():
            by_client.setdefault(client, {}).update(scalars)
        for client, loss in report.losses.items():
            losses.setdefault(client, []).append(loss)
    for client, parts in losses.items() if with_loss else ():
        if steps := sum(number for _, number in parts):
            by_client.setdefault(client, {})["train_loss"] = math.fsum(total for total, _ in parts) / steps
    return by_client
