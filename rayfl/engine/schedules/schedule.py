"""The interface of a schedule: submit a round to the hosts, say what to wait for, and own what is in flight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from rayfl.config.base_phase import BasePhase
from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Backend, Ref
from rayfl.engine.calls import Call, client_names
from rayfl.engine.watchdog import Watchdog
from rayfl.planning.events import Event
from rayfl.planning.participation import Everybody, Participant, Participation
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.round_index import RoundIndex
from rayfl.planning.round_times import RoundTimes
from rayfl.planning.totals import Simulated, Traffic
from rayfl.planning.virtual_clock import VirtualClock


@dataclass(frozen=True)
class SubmittedRound:
    """A round under way.

    Attributes:
        index: Which round.
        assignments: (host, clients) of all client updates that it waits for.
        reports: Calls that return an `UpdateReport` each.
        server_calls: Calls that return the scalars that the round reported on the server.
        model: Reference to the model to evaluate; None for the one that the server then has, which is fetched only if
            it is evaluated.
        evaluators: The hosts that are free to evaluate it; None for all.
        open_rounds: Numbers of rounds, this one or earlier, whose exchange clients will answer in a later round.
        scalars: What the schedule itself reports of the round, by name.
        simulated: What the run has simulated at the round's end, as `VirtualClock.pass_round` returns it.
        unanswered: By client, what the protocol moved for updates of this round whose answers do not count. They are
            not carried out, and are charged to the clients' privacy all the same.
    """

    index: RoundIndex
    assignments: Sequence[tuple[int, Sequence[int]]]
    reports: Sequence[Call]
    server_calls: Sequence[Call]
    model: Ref | None = None
    evaluators: Sequence[int] | None = None
    open_rounds: Sequence[int] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)
    simulated: Simulated | None = None
    unanswered: Mapping[int, Traffic] = field(default_factory=dict)


@dataclass(frozen=True)
class ScheduleContext:
    """What a schedule runs a phase with.

    Attributes:
        plan: The phase.
        scenario: What runs.
        backend: Hosts and server.
        watchdog: Waits for them.
        sizes: [clients] training samples of each client.
        draw: Draws the cohort of a round, without those whose privacy budget is spent, which may leave nobody; once a
            round, in order.
        committed: For those of some clients that keep a state, the last committed round that left it.
        settled: Where rounds settle one by one, waits for the earlier ones; to be called before any waiting.
        clock: The run's virtual clock; None without [participation], and where pooled samples train.
    """

    plan: PhasePlan
    scenario: Scenario
    backend: Backend
    watchdog: Watchdog
    sizes: np.ndarray
    draw: Callable[[RoundIndex], Sequence[int]]
    committed: Callable[[Sequence[int]], Mapping[int, int]]
    settled: Callable[[], Generator[Event, None, None]]
    clock: VirtualClock | None = None


class Schedule(ABC):
    """Runs the rounds of one phase.

    Rounds are submitted in order, each possibly before those ahead of it are over, and committed in order. Nothing may
    depend on which host has finished first.

    Attributes:
        config: The keys of a phase that is run so.
        noun: What such a phase is called: "there is no relay of 'scaffold'".
        keeps_time: Whether its rounds heed the virtual clock, and say in `SubmittedRound.simulated` how far they move
            it; a schedule that does not cannot run with [participation].
        participation: Who of a cohort takes part, and when; with [participation] the clock.

    Args:
        context: What it runs with.
    """

    config: ClassVar[type[BasePhase]]
    noun: ClassVar[str]
    keeps_time: ClassVar[bool] = False
    participation: Participation = Everybody()

    def __init__(self, context: ScheduleContext) -> None:
        self._context = context
        self.plan, self.scenario = context.plan, context.scenario
        self.backend, self.sizes, self.clock = context.backend, context.sizes, context.clock
        if context.clock is not None:
            self.participation = context.clock

    @classmethod  # noqa: B027 - most need none
    def check(cls, plan: PhasePlan, scenario: Scenario) -> None:
        """Checks, before anything starts, that a phase can be run so: its algorithm, its options, the hosts.

        Raises:
            ScenarioError: It cannot; the text begins with a key of the phase: "algorithm: ...".
        """

    @classmethod  # noqa: B027 - most need none
    def check_cohort(cls, plan: PhasePlan, smallest: int, largest: int) -> None:
        """Checks the size of cohorts, once it is known how many clients there are.

        Raises:
            ScenarioError: As `check`.
        """

    @abstractmethod
    def submit(self, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
        """Submits a whole round.

        Args:
            index: Position of the round within the scenario.

        Yields:
            Events, only if it has to wait.

        Returns:
            The round, under way.
        """

    def snapshot(self) -> dict[str, Any]:
        """What is in flight after the round that was submitted last, as plain data that JSON can hold.

        Empty where every round waits for all of its updates.
        """
        return {}

    def restore(self, in_flight: Mapping[str, Any]) -> None:  # noqa: B027 - most have nothing
        """Goes on from a snapshot, with a server that was restored and before any round is submitted."""

    def draw(self, index: RoundIndex) -> Sequence[Participant]:
        """Draws who takes part in a round; to be called once a round, in order.

        Fewer than the phase asks for, down to nobody (`idle`), where `local.dp.max_epsilon` leaves clients out or, with
        [participation], clients are not available.
        """
        return self.participation.of(index, self._context.draw(index))

    def idle(self, index: RoundIndex) -> SubmittedRound:
        """Submits a round in which nobody takes part, and which leaves the server's model and state as they are."""
        return SubmittedRound(index, [], [], [Call(self.backend.server.call("keep", index), "server: idle round")])

    def timed(self, round: SubmittedRound, times: RoundTimes | None) -> SubmittedRound:
        """Moves the virtual clock by a round, and says so; the round as it is where there is no clock."""
        if self.clock is None or times is None:
            return round
        return replace(round, simulated=self.clock.pass_round(times.simulated), unanswered=times.unanswered)

    def answer(self, host: int, index: RoundIndex, groups: Sequence[Sequence[int]], exchange: Ref) -> tuple[Ref, Call]:
        """Submits the answers of groups of clients to an exchange; returns their sum, and the call that reports."""
        clients = [client for group in groups for client in group]
        committed = self._context.committed(clients)
        part, report = self.backend.hosts[host].call("answer", index, groups, exchange, committed, returns=2)
        return part, Call(report, f"host {host}: {client_names(clients)}", host)

    def relay(self, host: int, index: RoundIndex, clients: Sequence[int], model: Ref) -> tuple[Ref, Call]:
        """Submits a segment of a relay; returns the model that its last client leaves, and the call that reports."""
        committed = self._context.committed(clients)
        left, report = self.backend.hosts[host].call("relay", index, clients, model, committed, returns=2)
        return left, Call(report, f"host {host}: {self.names(clients)}", host)

    def names(self, clients: Sequence[int]) -> str:
        """Who trains, for the watchdog."""
        return client_names(clients)

    def wait(self, calls: Sequence[Call], index: RoundIndex) -> Generator[Event, None, list[Any]]:
        """Waits for calls within a round, under the watchdog; returns their values."""
        yield from self._context.settled()
        return (yield from self._context.watchdog.wait(calls, self.plan.phase.name, index.round))
