"""The interface of schedules, which submit rounds to the hosts and own what is in flight.

With the schedules by name and the one that a phase names, and the exceptions that end a phase or run while a round is
submitted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import isabstract
from typing import Any, ClassVar

import numpy as np

from rayfl.config.base_phase import BasePhase
from rayfl.config.registry import Registry
from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Backend, Call, Ref, client_names
from rayfl.engine.events import Event
from rayfl.engine.plan.participation import Everybody, Participant, Participation, VirtualClock
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.round_times import RoundTimes
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.privacy_budget import Admission
from rayfl.engine.totals import Simulated, Traffic
from rayfl.engine.watchdog import Watchdog
from rayfl.errors import RayflError, ScenarioError
from rayfl.wording import report_as_theirs


@dataclass(frozen=True)
class SubmittedRound:
    """A round under way.

    Attributes:
        index: Position of the round within the scenario.
        assignments: (worker, clients) of all client updates that it waits for.
        reports: Calls that return an `UpdateReport` each.
        server_calls: Calls that return the scalars that the round reported on the server.
        model: Reference to the model to evaluate; None for the server's model after the round, which is fetched only
            if it is evaluated.
        evaluators: Workers that are free to evaluate the model; None for all.
        open_rounds: Numbers of rounds, this one or earlier, whose exchange clients will answer in a later round.
        scalars: Scalars that the schedule itself reports for the round, by name.
        simulated: Simulated totals at the round's end, as returned by `VirtualClock.pass_round`.
        unanswered: By client, the traffic of this round's updates whose answers do not count. These updates are not
            computed, but still charged to the clients' privacy.
        cohort: The clients in the order drawn; of errors that arrive together, the first of these counts.
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
    cohort: Sequence[int] = ()


@dataclass(frozen=True)
class ScheduleContext:
    """Everything that a schedule needs to run a phase.

    Attributes:
        plan: The phase.
        scenario: The scenario.
        backend: Workers and server.
        watchdog: Waits for calls.
        sizes: int64 [clients], number of training samples of each client.
        draw: Draws the cohort of a round, without clients whose privacy budget is exhausted, possibly empty; call it
            once per round, in order.
        committed: Returns the last committed round of those of the given clients that keep state.
        settled: Waits for earlier rounds if one of them may be made the last; call it before waiting for anything.
            Commits and reports those that are over in any case.
        clock: The run's virtual clock; None without [participation] and for training on pooled samples.
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
    """Runs the rounds of one phase; derive from it to write your own.

    Rounds are submitted and committed in order, but a round may be submitted before earlier ones are over. Results must
    not depend on which worker finishes first.

    Attributes:
        config: Config class with the keys of a phase that uses the schedule.
        noun: Name of such a phase in messages, such as "relay" in "'scaffold' cannot run in a relay".
        keeps_time: Whether rounds follow the virtual clock and report in `SubmittedRound.simulated` how far they
            advance it. Other schedules cannot run with [participation].
        begins_together: Whether all clients of a round begin when it does. Otherwise the schedule asks for each one
            whether it is available when it begins, since with sessions that may be later.
        participation: Decides which clients of a cohort take part, and when; with [participation], this is the clock.

    Args:
        context: The schedule's context.
    """

    config: ClassVar[type[BasePhase]]
    noun: ClassVar[str]
    keeps_time: ClassVar[bool] = False
    begins_together: ClassVar[bool] = True
    participation: Participation = Everybody()

    def __init__(self, context: ScheduleContext) -> None:
        self._context = context
        self.plan, self.scenario = context.plan, context.scenario
        self.backend, self.sizes, self.clock = context.backend, context.sizes, context.clock
        if context.clock is not None:
            self.participation = context.clock

    @classmethod  # noqa: B027 - most need none
    def check(cls, plan: PhasePlan, scenario: Scenario) -> None:
        """Checks before the run that the schedule supports a phase's algorithm and options, and the resources.

        Raises:
            ScenarioError: It does not; the message begins with a key of the phase, such as "algorithm: ...".
        """

    @classmethod  # noqa: B027 - most need none
    def check_cohort(cls, plan: PhasePlan, smallest: int, largest: int) -> None:
        """Checks the sizes of cohorts, once the number of clients is known.

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
            The submitted round.
        """

    def snapshot(self) -> dict[str, Any]:
        """Returns the work in flight after the last submitted round, as plain data for JSON.

        It is empty if every round waits for all of its updates.
        """
        return {}

    def restore(self, in_flight: Mapping[str, Any]) -> None:  # noqa: B027 - most have nothing
        """Continues from a snapshot, on a restored server and before any round is submitted."""

    def draw(self, index: RoundIndex) -> Sequence[Participant]:
        """Draws the participants of a round; call it once per round, in order.

        There may be fewer than the phase asks for, or none (see `idle`), if `local.dp.max_epsilon` leaves clients out
        or, with [participation], clients are not available.
        """
        return self.participation.of(index, self._context.draw(index))

    def idle(self, index: RoundIndex) -> SubmittedRound:
        """Submits a round without participants, which leaves the server's model and state unchanged."""
        return SubmittedRound(index, [], [], [Call(self.backend.server.call("keep", index), "server: idle round")])

    def timed(self, round: SubmittedRound, times: RoundTimes | None) -> SubmittedRound:
        """Advances the virtual clock by a round, and adds its times to the round; without a clock, does nothing."""
        if self.clock is None or times is None:
            return round
        return replace(round, simulated=self.clock.pass_round(times.simulated), unanswered=times.unanswered)

    def update(self, host: int, index: RoundIndex, groups: Sequence[Sequence[int]], exchange: Ref) -> Call:
        """Submits groups of clients whose answers stay on the host until `answer`; returns the report's call."""
        clients = [client for group in groups for client in group]
        report = self.backend.hosts[host].call("update", index, groups, exchange, self._context.committed(clients))
        return Call(report, f"worker {host}: {client_names(clients)}", host)

    def answer(
        self,
        host: int,
        index: RoundIndex,
        groups: Sequence[Sequence[int]],
        exchange: Ref,
        before: Sequence[Sequence[int]] = (),
        carried: Ref = None,
        reports: Sequence[Ref] = (),
    ) -> tuple[Ref, Call]:
        """Submits groups of clients that answer an exchange; returns references to their sum and to their report.

        Args:
            host: The host.
            index: The round.
            groups: The groups.
            exchange: The exchange.
            before: Groups submitted with `update` since the last `answer`, which belong to the same sum.
            carried: Reference to an earlier sum to which this one is added; None for none.
            reports: The reports of these updates that are not over yet.
        """
        clients = [client for group in groups for client in group]
        committed = self._context.committed([client for group in (*before, *groups) for client in group])
        more = (before, carried, *reports) if before or carried is not None else ()
        part, report = self.backend.hosts[host].call("answer", index, groups, exchange, committed, *more, returns=2)
        what = client_names(clients) if clients else "the sum of its clients' answers"
        return part, Call(report, f"worker {host}: {what}", host)

    def relay(self, host: int, index: RoundIndex, clients: Sequence[int], model: Ref) -> tuple[Ref, Call]:
        """Submits a segment of a relay; returns references to its last client's model and to the report."""
        committed = self._context.committed(clients)
        last_model, report = self.backend.hosts[host].call("relay", index, clients, model, committed, returns=2)
        return last_model, Call(report, f"worker {host}: {self.names(clients)}", host)

    def names(self, clients: Sequence[int]) -> str:
        """Returns the clients' names for the watchdog's messages."""
        return client_names(clients)

    def wait(self, calls: Sequence[Call], index: RoundIndex) -> Generator[Event, None, list[Any]]:
        """Waits for calls within a round, watched by the watchdog; returns their values."""
        yield from self._context.settled()
        return (yield from self._context.watchdog.wait(calls, self.plan.phase.name, index.round))

    def wait_for_some(
        self, calls: Sequence[Call], index: RoundIndex, cohort: Sequence[int], *needed: Call
    ) -> Generator[Event, None, dict[Ref, Any]]:
        """As `wait`, but only until some calls have returned; returns their values by reference.

        Args:
            calls: The calls.
            index: The round.
            cohort: Its clients in order; of errors that arrive together, the first of these counts.
            needed: Calls whose results these wait for.
        """
        yield from self._context.settled()
        name = self.plan.phase.name
        return (yield from self._context.watchdog.wait_for_some(calls, name, index.round, cohort, needed))


schedules = Registry(
    "schedule",
    {
        "parallel": "rayfl.engine.schedules.parallel:Parallel",
        "relay": "rayfl.engine.schedules.relay:Relay",
        "buffered": "rayfl.engine.schedules.asynchronous:Buffered",
        "asynchronous": "rayfl.engine.schedules.asynchronous:FullyAsynchronous",
        "local": "rayfl.engine.schedules.parallel:LocalOnly",
        "central": "rayfl.engine.schedules.relay:Central",
    },
)


def schedule_of(phase: BasePhase) -> type[Schedule]:
    """Returns the schedule class of a phase.

    Raises:
        ScenarioError: The name is not that of a schedule.
    """
    kind, where = schedules.resolve(phase.schedule), f"phases.{phase.name}.schedule"
    if not (isinstance(kind, type) and issubclass(kind, Schedule)):
        raise ScenarioError(f"{where}: '{phase.schedule}' is not a class derived from rayfl.schedules.Schedule")
    if isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise ScenarioError(f"{where}: '{phase.schedule}' must define its base class's abstract methods: {missing}")
    return kind


class NobodyLeftError(Exception):
    """A round's cohort was drawn, but the privacy budget admits none of its clients."""

    def __init__(self, admission: Admission) -> None:
        super().__init__(admission)
        self.admission = admission


class StoppedError(Exception):
    """The run was stopped while a schedule waited for earlier rounds."""


def submitted(schedule: Schedule, index: RoundIndex) -> Generator[Event, None, SubmittedRound]:
    """Submits a round.

    Raises:
        RayflError: The user's own schedule raised.
        NobodyLeftError: As the schedule's `draw`.
        StoppedError: As the schedule's `settled`.
    """
    try:
        return (yield from schedule.submit(index))
    except (RayflError, NobodyLeftError, StoppedError):
        raise
    except Exception as error:
        if type(schedule).__module__.startswith("rayfl."):
            raise
        raise RayflError(report_as_theirs(error, f"schedule '{type(schedule).__name__}': submit()")) from None
