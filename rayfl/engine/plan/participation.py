"""Which clients of a drawn cohort take part in a round, and when by the virtual clock; precedes every schedule.

The virtual clock knows availability, dropouts and energy, and the duration of updates from their work in steps and
samples. Everything follows from the scenario, so it is known before any client trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from rayfl.config.local import Local
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.totals import Message, Simulated, Traffic
from rayfl.errors import RayflError
from rayfl.local.steps import batches_of_steps, drawn, other_length, steps_per_epoch
from rayfl.streams import client_stream

if TYPE_CHECKING:
    from rayfl.engine.plan.devices import DeviceProfiles


@dataclass(frozen=True)
class Participant:
    """A client that takes part in a round.

    Attributes:
        client: The client's number.
        begins: Virtual seconds from the start of the round until its update begins.
        ends: Virtual seconds from then until the server has its answer, or knows that it drops out.
        answers: Whether its answer arrives; otherwise it drops out.

    Example:
        >>> from rayfl.schedules import Participant
        >>> late = Participant(client=7, begins=0.0, ends=12.5, answers=True)
        >>> late.ends
        12.5
    """

    client: int
    begins: float = 0.0
    ends: float = 0.0
    answers: bool = True


class Participation(Protocol):
    """Decides which clients take part, from the scenario alone, so that results do not depend on machines' real speed.

    Example:
        >>> from rayfl.schedules import Participant, RoundIndex
        >>> class EvenClients:
        ...     def of(self, index, cohort):
        ...         return [Participant(client) for client in cohort if client % 2 == 0]
        >>> [each.client for each in EvenClients().of(RoundIndex(0, 1, 1), [4, 3, 8])]
        [4, 8]
    """

    def of(self, index: RoundIndex, cohort: Sequence[int]) -> Sequence[Participant]:
        """Returns the clients that take part.

        Args:
            index: Position of the round within the scenario.
            cohort: The drawn clients, in order.

        Returns:
            Some or all of them, in the same order.
        """


class Everybody:
    """The whole cohort takes part, and all clients begin at once.

    Example:
        >>> from rayfl.schedules import Everybody, RoundIndex
        >>> [each.client for each in Everybody().of(RoundIndex(0, 1, 1), [4, 3])]
        [4, 3]
    """

    def of(self, index: RoundIndex, cohort: Sequence[int]) -> Sequence[Participant]:
        """Returns every client of the cohort, beginning with the round."""
        return [Participant(client) for client in cohort]


class Work(NamedTuple):
    """The work of a client in an exchange.

    Attributes:
        steps: Number of local steps. A loss or gradient over all samples counts as the steps of an epoch.
        samples: Number of training samples that pass through the network, with repetitions.
    """

    steps: int
    samples: int

    def __add__(self, other: object) -> Work:
        assert isinstance(other, Work)
        return Work(self.steps + other.steps, self.samples + other.samples)


class UpdateWork:
    """The work of a phase's client updates, by the requests that they make.

    Args:
        plan: The phase.
        seed: The scenario's seed.
    """

    def __init__(self, plan: PhasePlan, seed: int) -> None:
        self._plan, self._sizes, self._seed = plan, plan.population.sizes, seed
        self._exchanges = exchanges_of_cohort(plan)
        self._of_kind = cache(self._planned)

    def of(self, index: RoundIndex, client: int) -> Sequence[Work]:
        """The work in each exchange that the cohort answers, with the epochs and steps that the client draws."""
        local = drawn(
            self._plan.phase.local,
            lambda purpose: client_stream(self._seed, purpose, index.phase, index.round, client),
        )
        return self._of_kind(index.round_in_phase == 1, int(self._sizes[client]), local.epochs, local.steps)

    def _planned(self, first_round: bool, samples: int, epochs: int, steps: int | None) -> Sequence[Work]:
        local = self._plan.phase.local.model_copy(update={"epochs": epochs, "steps": steps})
        trained = int(self._plan.algorithm.training_sizes(np.array([samples]))[0])
        work = dict.fromkeys(self._exchanges, Work(0, 0))
        for request in self._plan.sample_requests(first_round):
            if request.kind == "training":
                asked = local.model_copy(update=other_length(request.epochs, request.steps))
                done = _training(asked, trained)
            elif request.every_step:
                done = _training(local, samples)
            else:
                done = Work(steps_per_epoch(local, samples), samples)
            work[request.exchange if len(work) > 1 else self._exchanges[0]] += done
        return tuple(work.values())


def unplanned_traffic(plan: PhasePlan, round: int, way: str, moved: int, answers: int, planned: int) -> str:
    """Describes a round whose traffic, `moved` bytes for some answers, is not `planned` bytes for each."""
    return (
        f"phases.{plan.phase.name}: round {round} moved {moved} bytes {way} for {answers} client updates, but the "
        f"virtual clock of [participation] planned {planned} for each; correct messages() of "
        f"'{plan.phase.algorithm.name}', planned() of its transforms, or with_first_model of its exchanges"
    )


def exchanges_of_cohort(plan: PhasePlan) -> list[int]:
    """Numbers of a round's exchanges that clients answer; a relay has a single one, the hop."""
    if not plan.phase.has_server:
        return [0]
    return [number for number, asked in enumerate(plan.asked) if asked == "cohort"]


def _training(local: Local, samples: int) -> Work:
    batches = batches_of_steps(local, samples)
    return Work(len(batches), sum(map(sum, batches)))


@dataclass(frozen=True)
class ExchangeTime:
    """How long a client's part of one exchange takes, in virtual seconds.

    Attributes:
        down: Receiving the server's message.
        compute: Computing the answer.
        up: Sending the answer.
    """

    down: float = 0.0
    compute: float = 0.0
    up: float = 0.0

    @property
    def seconds(self) -> float:
        """The total."""
        return self.down + self.compute + self.up

    @property
    def transfer(self) -> float:
        """The seconds of receiving and sending."""
        return self.down + self.up

    def until(self, stop: float) -> ExchangeTime:
        """What of it passes before a client stops, `stop` seconds after the start of the exchange."""
        return ExchangeTime(
            min(self.down, stop),
            min(self.compute, max(stop - self.down, 0.0)),
            min(self.up, max(stop - self.down - self.compute, 0.0)),
        )


class VirtualClock:
    """The clock of a run, and the `Participation` of its rounds.

    Attributes:
        simulated: The simulated totals up to the end of the last submitted round.

    Args:
        seed: The scenario's seed.
        plans: The run's phases.
        devices: The clients' devices.
    """

    def __init__(self, seed: int, plans: Sequence[PhasePlan], devices: DeviceProfiles) -> None:
        self._seed, self._plans, self._devices = seed, plans, devices
        self._work = [UpdateWork(plan, seed) for plan in plans]
        has_power = not devices.quantities.keys().isdisjoint(("compute_watts", "transmit_watts"))
        has_speed = not devices.quantities.keys().isdisjoint(("steps_per_s", "samples_per_s"))
        has_bandwidth = not devices.quantities.keys().isdisjoint(("down_bytes_per_s", "up_bytes_per_s"))
        split = 0.0 if has_speed and has_bandwidth else None
        self.simulated = Simulated(joules=0.0 if has_power else None, transfer=split, training=split)
        self._unavailable = 0
        self._waits_until: float | None = None

    @property
    def now(self) -> float:
        """Virtual seconds since the start of the run: the end of the last submitted round, or of the wait after it."""
        return self.simulated.seconds if self._waits_until is None else self._waits_until

    def present(self, index: RoundIndex, cohort: Sequence[int], together: bool = True) -> list[int]:
        """The clients of a drawn cohort that are available when the round begins; `pass_round` counts the others.

        If sessions leave none, the round waits for the first of them.

        Args:
            index: The round.
            cohort: The drawn clients.
            together: Whether all begin with the round; otherwise sessions are not looked at.
        """
        if self._devices.sessions is not None:
            if not together:
                return list(cohort)
            if (begins := self.first_available(cohort, self.now)) < np.inf:
                self._waits_until = begins
        here = [client for client in cohort if self.is_available(index, client, self.now)]
        self._unavailable = len(cohort) - len(here)
        return here

    def is_available(self, index: RoundIndex, client: int, at: float) -> bool:
        """Whether a client is available at a virtual second; with a probability, for a whole round or not at all."""
        if self._devices.sessions is not None:
            return self._devices.sessions.until(client, at) is not None
        share = self._devices.of("availability", client)
        return share is None or share >= 1 or self._draw(index, "availability", client) < share

    def first_available(self, clients: Iterable[int], at: float) -> float:
        """The first virtual second, from `at` on, in which a session of some client goes on; infinity without one."""
        sessions = self._devices.sessions
        return np.inf if sessions is None else min((sessions.begin(client, at) for client in clients), default=np.inf)

    def of(self, index: RoundIndex, cohort: Sequence[int]) -> Sequence[Participant]:
        """See `Participation.of`: all updates begin with the round."""
        return [self.update(index, client, self.now) for client in cohort]

    def update(self, index: RoundIndex, client: int, at: float) -> Participant:
        """Simulates an update that an available client begins at a virtual second of the run.

        It drops out with the client's probability for the round, or where its session ends before its answer is in.
        """
        seconds = sum(time.seconds for time in self.exchanges(index, client))
        risk = self._devices.of("dropout", client) or 0.0
        lost = risk > 0 and self._draw(index, "dropout", client) < risk
        if self._devices.sessions is not None:
            until = self._devices.sessions.until(client, at)
            lost = lost or until is None or until < at + seconds
        return Participant(client, 0.0, seconds, not lost)

    def messages(self, index: RoundIndex) -> Sequence[Message]:
        """Of each exchange of a round that the cohort answers, or of a relay's hop."""
        plan = self._plans[index.phase]
        return plan.first_messages if index.round_in_phase == 1 else plan.messages

    def exchanges(self, index: RoundIndex, client: int) -> list[ExchangeTime]:
        """How long a client's part of each exchange that the cohort answers takes."""
        of, times = self._devices.of, []
        work = self._work[index.phase].of(index, client)
        for message, computed in zip(self.messages(index), work, strict=True):
            down, up = of("down_bytes_per_s", client), of("up_bytes_per_s", client)
            steps, samples = of("steps_per_s", client), of("samples_per_s", client)
            times.append(
                ExchangeTime(
                    message.down.down_bytes / down if down else 0.0,
                    computed.steps / steps if steps else computed.samples / samples if samples else 0.0,
                    message.up.up_bytes / up if up else 0.0,
                )
            )
        return times

    def joules(self, client: int, time: ExchangeTime, until: float = np.inf) -> float:
        """Energy that a client's device uses in an exchange, up to `until` virtual seconds."""
        spent = time.until(until)
        transmit = self._devices.of("transmit_watts", client) or 0.0
        return spent.transfer * transmit + spent.compute * (self._devices.of("compute_watts", client) or 0.0)

    def check(self, index: RoundIndex, answers: int, moved: Traffic) -> None:
        """Checks that a round's traffic was as planned, for any algorithm.

        Args:
            index: The round.
            answers: Number of its client updates.
            moved: The traffic that hosts counted for them.

        Raises:
            RayflError: The traffic differs.
        """
        for way, planned, sent in (
            ("down", sum(message.down.down_bytes for message in self.messages(index)), moved.down_bytes),
            ("up", sum(message.up.up_bytes for message in self.messages(index)), moved.up_bytes),
        ):
            if sent != answers * planned:
                raise RayflError(unplanned_traffic(self._plans[index.phase], index.round, way, sent, answers, planned))

    def pass_round(self, round: Simulated) -> Simulated:
        """Advances the clock by a submitted round, after what `present` waited; counts whom it found unavailable.

        Returns:
            The simulated totals at the round's end, for `SubmittedRound.simulated`.
        """
        self.simulated += Simulated(self.now - self.simulated.seconds, unavailable=self._unavailable)
        self.simulated += round
        self._unavailable, self._waits_until = 0, None
        return self.simulated

    def restore(self, simulated: Simulated) -> None:
        """Continues after a committed round."""
        self.simulated, self._unavailable, self._waits_until = simulated, 0, None

    def _draw(self, index: RoundIndex, purpose: str, client: int) -> float:
        return float(client_stream(self._seed, purpose, index.phase, index.round, client).random())
