"""A run's progress: the state that committed rounds leave with the scheduler, saved in and restored from snapshots.

A committed round is reported with sums and means over its client updates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from rayfl.config.section import check_plain
from rayfl.engine.events import ClientScalars, RoundDone
from rayfl.engine.plan.participation import VirtualClock
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.sampling import Sampling, reported_scalars
from rayfl.engine.privacy_budget import PrivacyBudget
from rayfl.engine.schedules.schedule import NobodyLeftError, SubmittedRound
from rayfl.engine.server import BEFORE, ServerSnapshot
from rayfl.engine.state.committed_rounds import KEPT, CommittedRounds
from rayfl.engine.state.segments import WrittenStates, in_order, states_of, stored_states
from rayfl.engine.state.snapshots import Complete, RunSnapshot
from rayfl.engine.state.state_store import StateStore
from rayfl.engine.totals import Simulated, Traffic, UpdateReport
from rayfl.errors import RayflError, StateLostError
from rayfl.local.spending import SpendingByClient


def round_done(
    phase: str,
    done: SubmittedRound,
    reports: Sequence[UpdateReport],
    server: Sequence[Mapping[str, float] | None],
    traffic: Traffic,
    seconds: float,
    spent: SpendingByClient,
    left_out: tuple[int, ...] | None,
    simulated: Simulated | None,
) -> RoundDone:
    """Summarises a round.

    Args:
        phase: The phase's name.
        done: The round.
        reports: The hosts' reports on its client updates.
        server: The scalars that the server's calls returned.
        traffic: Total since the start of the run.
        seconds: Time since the start of the run.
        spent: Privacy that the round spent, by client.
        left_out: Clients whose budget was exhausted; None in phases that leave no client out.
        simulated: Total since the start of the run; None without [participation].
    """
    losses = [loss for report in reports for loss in report.losses.values()]
    steps = sum(number for _, number in losses)
    by_client = reported_scalars(reports)
    means = {
        name: math.fsum(values) / len(values)
        for name in sorted({name for scalars in by_client.values() for name in scalars})
        if (values := [scalars[name] for scalars in by_client.values() if name in scalars])
    }
    reported = {name: value for scalars in server for name, value in (scalars or {}).items()}
    if left_out is not None:
        reported |= {"left_out": float(len(left_out))}
    reported |= done.scalars
    return RoundDone(
        phase=phase,
        round=done.index.round,
        round_in_phase=done.index.round_in_phase,
        train_loss=math.fsum(total for total, _ in losses) / steps if steps else math.nan,
        client_updates=sum(len(clients) for _, clients in done.assignments),
        steps=steps,
        traffic=traffic,
        seconds=seconds,
        scalars=means | reported,
        client_scalars=tuple(ClientScalars(client, by_client[client]) for client in sorted(by_client)),
        spent=spent,
        left_out=left_out or (),
        simulated=simulated,
    )


class CommittedState:
    """The progress of a run: draws cohorts, records committed rounds, and resumes from a snapshot.

    Args:
        run: The run's plan.

    Attributes:
        index: The last committed round.
        in_flight: What its schedule has submitted and not committed.
        client_rounds: The round that left each client its state.
        budget: The clients' privacy budgets.
    """

    def __init__(self, run: RunPlan) -> None:
        scenario, plans = run.scenario, run.phases
        self._scenario, self._plans = scenario, plans
        self.index, self.in_flight = BEFORE, dict[str, Any]()
        self.client_rounds = CommittedRounds()
        self.budget = PrivacyBudget(scenario.seed, plans)
        self._sampling = Sampling(scenario, plans)
        self._clock = VirtualClock(scenario.seed, plans, run.devices) if run.devices else None
        self._simulated = self._clock.simulated if self._clock else None
        self._traffic = Traffic()

    def done_of(self, phase: int) -> int:
        """Returns the number of committed rounds of a phase; 0 unless it is the current one."""
        return self.index.round_in_phase if self.index.phase == phase else 0

    def clock_of(self, plan: PhasePlan) -> VirtualClock | None:
        """Returns the virtual clock of a phase; None if it has none."""
        return None if plan.phase.pool else self._clock

    def draw(self, index: RoundIndex, together: bool) -> Sequence[int]:
        """Draws the clients of a round: those of its cohort that are present and may still spend privacy.

        Args:
            index: The round.
            together: Whether all begin with the round; otherwise sessions are not looked at.

        Raises:
            NobodyLeftError: The budget ends the phase before this round.
        """
        cohort: Sequence[int] = self._sampling.draw(index)
        if clock := self.clock_of(self._plans[index.phase]):
            cohort = clock.present(index, cohort, together)
        if not self.budget.is_spent:
            return cohort
        admission = self.budget.admit(index, cohort)
        if admission.ends:
            raise NobodyLeftError(admission)
        return admission.cohort

    def check(self, done: SubmittedRound, reports: Sequence[UpdateReport]) -> None:
        """Checks a round that is about to be committed against the virtual clock's plan.

        Raises:
            RayflError: The traffic differs from the plan.
        """
        if self._clock and done.simulated:
            moved = sum((report.traffic for report in reports), Traffic())
            self._clock.check(done.index, sum(len(clients) for _, clients in done.assignments), moved)

    def commit(
        self,
        done: SubmittedRound,
        reports: Sequence[UpdateReport],
        server: Sequence[Mapping[str, float] | None],
        in_flight: dict[str, Any],
        seconds: float,
    ) -> RoundDone:
        """Records a round that hosts and server have committed.

        Args:
            done: The round.
            reports: The hosts' reports on its client updates.
            server: The scalars that the server's calls returned.
            in_flight: What the schedule had in flight right after it submitted this round.
            seconds: Time since the start of the run.
        """
        index, plan = done.index, self._plans[done.index.phase]
        if plan.keeps_client_state:
            updated = [client for _, clients in done.assignments for client in clients]
            self.client_rounds.commit(index, updated, set(plan.client_state.values()))
        self.index, self.in_flight, self._simulated = index, in_flight, done.simulated or self._simulated
        self._sampling.commit(index, reports)
        spent: SpendingByClient = {}
        left_out: tuple[int, ...] | None = None
        for traffic in (*(report.traffic for report in reports), *done.unanswered.values()):
            self._traffic += traffic
        if self.budget.is_spent:
            spent = self.budget.commit(index, reports, done.unanswered)
            left_out = self.budget.left_out_of(index)
        return round_done(
            plan.phase.name, done, reports, server, self._traffic, seconds, spent, left_out, self._simulated
        )

    def snapshot(self, evaluations: Sequence[RoundIndex]) -> Complete:
        """Captures the progress.

        Args:
            evaluations: Rounds whose evaluation has not been reported yet.

        Returns:
            Function that adds the states of server and clients; it raises `StateLostError` if that of a client is
            missing.

        Raises:
            RayflError: What the schedule has in flight is not plain data.
        """
        try:
            check_plain(self.in_flight)
        except ValueError as error:
            name = self.index.config(self._scenario).schedule
            raise RayflError(f"schedule '{name}': snapshot() must return plain data: {error}") from None
        expected = self.client_rounds.captured(self.index.phase)
        index, traffic, simulated = self.index, self._traffic, self._simulated
        sampling, privacy, in_flight = self._sampling.snapshot(), self.budget.snapshot(), deepcopy(self.in_flight)

        def complete(server: ServerSnapshot, hosts: Sequence[WrittenStates]) -> RunSnapshot:
            _check_whole([states for _, states in hosts], states_of(expected), index)
            clients = [part for parts, _ in hosts for part in parts]
            return RunSnapshot(
                index, sampling, traffic, evaluations, privacy, in_flight, server, clients, simulated=simulated
            )

        return complete

    def restore(self, snapshot: RunSnapshot, store: StateStore) -> None:
        """Continues after the round of a snapshot.

        Raises:
            DamagedStateError: An index of clients' states is missing or damaged.
        """
        self.index, self.in_flight = snapshot.index, deepcopy(dict(snapshot.in_flight))
        states = stored_states(snapshot.clients, store).tolist()
        self.client_rounds.restore(
            snapshot.index.phase, ((client, KEPT[scope], round) for client, scope, round in states)
        )
        self.budget.restore(snapshot.privacy)
        self._sampling.restore(snapshot.sampling)
        self._traffic = snapshot.traffic
        if self._clock is not None and snapshot.simulated is not None:
            self._simulated = snapshot.simulated
            self._clock.restore(snapshot.simulated)


def _check_whole(written: Sequence[np.ndarray], expected: np.ndarray, index: RoundIndex) -> None:
    """Checks that no state is missing; a restarted host lists only the states that it has."""
    if np.array_equal(expected, in_order(np.concatenate([expected[:0], *written]))):
        return
    if lost := {*expected.tolist()}.difference(*(states.tolist() for states in written)):
        client, _, round = min(lost)
        raise StateLostError(
            f"the state of client {client} after round {round} is lost: its worker was restarted and no longer has it "
            f"for the snapshot of round {index.round}"
        )
