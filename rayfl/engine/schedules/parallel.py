"""Parallel rounds: from the server to the hosts and back, once for each of the algorithm's exchanges.

With local training without communication: parallel rounds in which no model is sent.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import ClassVar

import numpy as np

from rayfl.config.base_phase import BasePhase
from rayfl.config.phase import LocalPhase, ParallelPhase
from rayfl.engine.assignment import Group, at_home, grouped, longest_first
from rayfl.engine.backend import Call
from rayfl.engine.events import Event
from rayfl.engine.plan.cohort import cohort_sizes
from rayfl.engine.plan.participation import Participant
from rayfl.engine.plan.round_times import parallel_round
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.schedules.schedule import Schedule, SubmittedRound
from rayfl.local.steps import typical, update_steps


class Parallel(Schedule):
    """The cohort trains at once from the same model; every worker returns one sum."""

    config: ClassVar[type[BasePhase]] = ParallelPhase
    noun = "parallel phase"
    keeps_time = True

    def submit(self, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
        """See `Schedule.submit`."""
        participants = self.draw(index)
        times = parallel_round(self.clock, index, participants, *self._limits(participants)) if self.clock else None
        cohort = [participant.client for participant in participants] if times is None else times.counted
        if not cohort and not self.plan.phase.hides_cohort:
            return self.timed(self.idle(index), times)
        server, hosts = self.backend.server, self.backend.hosts
        shares = self._assign(cohort)
        assignments = [(host, [client for group in groups for client in group]) for host, groups in shares]
        exchange, reports, server_calls = server.call("begin", index, cohort), [], []
        for asked in self.plan.asked:
            parts = []
            if asked != "cohort":
                host = index.round % len(hosts)  # any host can do it
                part, report = hosts[host].call("answer_for_server", index, exchange, returns=2)
                parts.append(part)
                what = f"worker {host}: the server's {'samples' if asked == 'server' else 'work'}"
                reports.append(Call(report, what, host))
            for host, groups in shares if asked == "cohort" else ():
                part, call = self.answer(host, index, groups, exchange)
                parts.append(part)
                reports.append(call)
            scalars, exchange = server.call("receive", index, None, *parts, returns=2)
            server_calls.append(Call(scalars, "server: aggregation"))
        yield from ()
        return self.timed(SubmittedRound(index, assignments, reports, server_calls), times)

    def _limits(self, participants: Sequence[Participant]) -> tuple[int, float | None, int]:
        """Returns the number of answers that count, the deadline of an exchange, and the quorum of a round."""
        settings, most = self.plan.settings, len(participants)
        if settings.over_selection > 1:
            most = cohort_sizes(self.plan.phase, len(self.sizes))[1]
        return most, settings.deadline_s, settings.quorum

    def _assign(self, cohort: Sequence[int]) -> list[tuple[int, list[Group]]]:
        hosts, local = len(self.backend.hosts), typical(self.plan.phase.local)
        sizes = self.plan.algorithm.training_sizes(self.sizes[np.asarray(cohort, np.int64)])
        steps, at_once = [update_steps(local, int(size)) for size in sizes], self.scenario.numerics.clients_at_once
        if self.plan.keeps_client_state:
            assigned = at_home(cohort, steps, at_once, hosts)
        else:
            groups, steps_of = grouped(cohort, steps, at_once), dict(zip(cohort, steps, strict=True))
            assigned = longest_first(groups, [sum(steps_of[client] for client in group) for group in groups], hosts)
        return [(host, groups) for host, groups in enumerate(assigned) if groups]


class LocalOnly(Parallel):
    """Every client of the cohort continues with its own model, on the worker that keeps it."""

    config = LocalPhase
    noun = "local phase"
