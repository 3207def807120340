"""Parallel rounds: from the server to the hosts and back, once for each of the algorithm's exchanges.

With local training without communication: parallel rounds in which no model is sent.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rayfl.config.base_phase import BasePhase
from rayfl.config.phase import LocalPhase, ParallelPhase
from rayfl.engine.assignment import (
    BASE_STEPS,
    PER_HOST,
    UNITS,
    Group,
    Units,
    at_home,
    grouped,
    longest_first,
    merge_steps,
)
from rayfl.engine.backend import LONGEST_CHAIN, Call, Ref
from rayfl.engine.events import Event
from rayfl.engine.locality import near_data
from rayfl.engine.plan.cohort import cohort_sizes
from rayfl.engine.plan.participation import Participant
from rayfl.engine.plan.round_times import parallel_round
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.schedules.schedule import Schedule, ScheduleContext, SubmittedRound
from rayfl.engine.totals import UpdateReport
from rayfl.local.steps import typical, update_steps


@dataclass
class _Share:
    """What a host has of a round.

    Attributes:
        host: Number of the host.
        groups: The groups that it was given.
        in_hand: Calls under way.
        kept: Units whose answers it keeps, since its sum was last taken.
        sum: Reference to the sum of the others' answers; None before the first.
    """

    host: int
    groups: list[Group] = field(default_factory=list)
    in_hand: list[Call] = field(default_factory=list)
    kept: list[list[Group]] = field(default_factory=list)
    sum: Ref = None


class Parallel(Schedule):
    """The cohort trains at once from the same model; every worker returns one sum."""

    config: ClassVar[type[BasePhase]] = ParallelPhase
    noun = "parallel phase"
    keeps_time = True

    def __init__(self, context: ScheduleContext) -> None:
        super().__init__(context)
        self._steps: dict[int, int] = {}
        self._step_s: float | None = None

    def submit(self, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
        participants = self.draw(index)
        times = parallel_round(self.clock, index, participants, *self._limits(participants)) if self.clock else None
        cohort = [participant.client for participant in participants] if times is None else times.counted
        if not cohort and not self.plan.phase.hides_cohort:
            return self.timed(self.idle(index), times)
        server, hosts = self.backend.server, self.backend.hosts
        assignments: list[tuple[int, list[int]]] = []
        exchange, reports, server_calls = server.call("begin", index, cohort), [], []
        for asked in self.plan.asked:
            parts = []
            if asked != "cohort":
                host = index.round % len(hosts)  # any host can do it
                part, report = hosts[host].call("answer_for_server", index, exchange, returns=2)
                parts.append(part)
                what = f"worker {host}: the server's {'samples' if asked == 'server' else 'work'}"
                reports.append(Call(report, what, host))
            else:
                shares, calls = yield from self._answers(index, exchange, cohort)
                parts += self._merged({share.host: share.sum for share in shares})
                assignments = [(share.host, [client for group in share.groups for client in group]) for share in shares]
                reports += calls
            scalars, exchange = server.call("receive", index, None, *parts, returns=2)
            server_calls.append(Call(scalars, "server: aggregation"))
        return self.timed(SubmittedRound(index, assignments, reports, server_calls, cohort=cohort), times)

    def _answers(
        self, index: RoundIndex, exchange: Ref, cohort: Sequence[int]
    ) -> Generator[Event, None, tuple[list[_Share], list[Call]]]:
        """Gives a cohort to the hosts, unit by unit, until none waits.

        Returns:
            What each host has of the round, and the calls that return the reports.
        """
        groups = self._assign(cohort)
        near = () if self.plan.population.fragments is None else self.backend.nodes
        units = Units(groups, self._cost, self._step_s, movable=not self.plan.client_state, nodes=near)
        at_stake = max(UNITS, max(map(units.waiting, range(len(groups)))) // LONGEST_CHAIN)
        shares = [_Share(host) for host in range(len(groups))]
        reports: list[Call] = []
        sent = Call(exchange, "server: what it sends to the cohort")
        while True:
            for share in shares * PER_HOST:
                if len(share.in_hand) < PER_HOST and (unit := units.take(share.host)):
                    share.groups += unit
                    last = units.is_done(share.host) or len(share.kept) + 1 == at_stake
                    reports.append(self._submit(share, index, unit, exchange, last))
            if not units:
                break
            in_hand = [call for share in shares for call in share.in_hand]
            done = yield from self.wait_for_some(in_hand, index, cohort, sent)
            for share in shares:
                share.in_hand = [call for call in share.in_hand if call.ref not in done]
            self._measure(done.values())
        reports += [self._submit(share, index, [], exchange, answer=True) for share in shares if share.kept]
        return [share for share in shares if share.groups], reports

    def _submit(self, share: _Share, index: RoundIndex, unit: list[Group], exchange: Ref, answer: bool) -> Call:
        """Submits a unit to a host, which adds its answers to the sum at once or keeps them; returns the report."""
        if answer:
            before = [group for kept in share.kept for group in kept]
            under_way = [call.ref for call in share.in_hand]
            share.sum, report = self.answer(share.host, index, unit, exchange, before, share.sum, under_way)
            share.kept = []
        else:
            report = self.update(share.host, index, unit, exchange)
            share.kept.append(unit)
        share.in_hand.append(report)
        return report

    def _merged(self, sums: dict[int, Ref]) -> list[Ref]:
        """References to as few sums as the server should receive; hosts merge those of many.

        Args:
            sums: A reference to the sum of each host, which are dropped when merged.
        """
        for step in merge_steps(list(sums), self.backend.nodes):
            for host, *others in step:
                parts = [sums[host], *map(sums.pop, others)]
                sums[host] = self.backend.hosts[host].call("merge", *parts)
        return list(sums.values())

    def _cost(self, clients: Iterable[int]) -> float:
        """The cost of these clients' updates, in steps."""
        return sum(self._steps[client] + BASE_STEPS for client in clients)

    def _measure(self, reports: Iterable[UpdateReport]) -> None:
        """Learns how long a step takes."""
        for report in reports:
            if not report.losses:
                continue
            step_s = report.seconds / self._cost(report.losses)
            self._step_s = step_s if self._step_s is None else (self._step_s + step_s) / 2

    def _limits(self, participants: Sequence[Participant]) -> tuple[int, float | None, int]:
        """Returns the number of answers that count, the deadline of an exchange, and the quorum of a round."""
        settings, most = self.plan.settings, len(participants)
        if settings.over_selection > 1:
            most = cohort_sizes(self.plan.phase, len(self.sizes))[1]
        return most, settings.deadline_s, settings.quorum

    def _assign(self, cohort: Sequence[int]) -> list[list[Group]]:
        """Returns every host's groups of a cohort."""
        hosts, local = len(self.backend.hosts), typical(self.plan.phase.local)
        sizes = self.plan.algorithm.training_sizes(self.sizes[np.asarray(cohort, np.int64)])
        steps, at_once = [update_steps(local, int(size)) for size in sizes], self.scenario.numerics.clients_at_once
        self._steps = dict(zip(cohort, steps, strict=True))
        if self.plan.keeps_client_state:
            return at_home(cohort, steps, at_once, hosts)
        groups = grouped(cohort, steps, at_once)
        of_groups = [sum(self._steps[client] for client in group) for group in groups]
        if (fragments := self.plan.population.fragments) is None:
            return longest_first(groups, of_groups, hosts)
        return near_data(groups, of_groups, [int(fragments[group[0]]) for group in groups], self.backend.nodes)


class LocalOnly(Parallel):
    """Every client of the cohort continues with its own model, on the worker that keeps it."""

    config = LocalPhase
    noun = "local phase"
