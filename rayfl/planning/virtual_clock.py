"""The virtual clock of a run: availability, duration of updates, dropouts, and energy.

Everything follows from the scenario, so it is known before any client trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rayfl.errors import RayflError
from rayfl.planning.message import Message
from rayfl.planning.participation import Participant
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.round_index import RoundIndex
from rayfl.planning.totals import Simulated, Traffic
from rayfl.planning.update_work import UpdateWork
from rayfl.planning.workload import Population
from rayfl.streams import client_stream


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


class VirtualClock:
    """The clock of a run, and the `Participation` of its rounds.

    Attributes:
        simulated: The simulated totals up to the end of the last submitted round.

    Args:
        seed: The scenario's seed.
        plans: The run's phases.
        populations: The clients of each phase, with their devices.
    """

    def __init__(self, seed: int, plans: Sequence[PhasePlan], populations: Sequence[Population]) -> None:
        devices = populations[0].devices
        assert devices is not None
        self._seed, self._devices = seed, devices
        self._phases = [plan.phase for plan in plans]
        self._messages = [population.messages for population in populations]
        self._work = [
            UpdateWork(plan, population.sizes, seed) for plan, population in zip(plans, populations, strict=True)
        ]
        has_power = not devices.quantities.keys().isdisjoint(("compute_watts", "transmit_watts"))
        self.simulated = Simulated(joules=0.0 if has_power else None)
        self._unavailable = 0

    @property
    def now(self) -> float:
        """Virtual seconds from the start of the run to the end of the last submitted round."""
        return self.simulated.seconds

    def present(self, index: RoundIndex, cohort: Sequence[int]) -> list[int]:
        """The clients of a drawn cohort that are available when the round begins; `pass_round` counts the others."""
        here = [client for client in cohort if self.is_available(index, client, self.now)]
        self._unavailable = len(cohort) - len(here)
        return here

    def is_available(self, index: RoundIndex, client: int, at: float) -> bool:
        """Whether a client is available at a virtual second; with a probability, for a whole round or not at all."""
        if self._devices.sessions is not None:
            return self._devices.sessions.until(client, at) is not None
        share = self._devices.of("availability", client)
        return share is None or share >= 1 or self._draw(index, "availability", client) < share

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
        return self._messages[index.phase]

    def exchanges(self, index: RoundIndex, client: int) -> list[ExchangeTime]:
        """How long a client's part of each exchange that the cohort answers takes."""
        of, times = self._devices.of, []
        work = self._work[index.phase].of(index, client)
        for message, computed in zip(self._messages[index.phase], work, strict=True):
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
        down = min(time.down, until)
        compute = min(time.compute, max(until - time.down, 0.0))
        up = min(time.up, max(until - time.down - time.compute, 0.0))
        transmit = self._devices.of("transmit_watts", client) or 0.0
        return (down + up) * transmit + compute * (self._devices.of("compute_watts", client) or 0.0)

    def check(self, index: RoundIndex, answers: int, moved: Traffic) -> None:
        """Checks that a round's traffic was as planned, for any algorithm.

        Args:
            index: The round.
            answers: Number of its client updates.
            moved: The traffic that hosts counted for them.

        Raises:
            RayflError: The traffic differs.
        """
        for way, planned, found in (
            ("down", sum(message.down.down_bytes for message in self.messages(index)), moved.down_bytes),
            ("up", sum(message.up.up_bytes for message in self.messages(index)), moved.up_bytes),
        ):
            if found != answers * planned:
                phase = self._phases[index.phase]
                raise RayflError(
                    f"phases.{phase.name}: round {index.round} moved {found} bytes {way} for {answers} client updates, "
                    f"but the virtual clock of [participation] planned {planned} for each; correct messages() of "
                    f"'{phase.algorithm.name}', planned() of its transforms, or with_first_model of its exchanges"
                )

    def pass_round(self, round: Simulated) -> Simulated:
        """Advances the clock by a submitted round; adds the clients that `present` found unavailable.

        Returns:
            The simulated totals at the round's end, for `SubmittedRound.simulated`.
        """
        self.simulated += replace(round, unavailable=round.unavailable + self._unavailable)
        self._unavailable = 0
        return self.simulated

    def restore(self, simulated: Simulated) -> None:
        """Continues after a committed round."""
        self.simulated, self._unavailable = simulated, 0

    def _draw(self, index: RoundIndex, purpose: str, client: int) -> float:
        return float(client_stream(self._seed, purpose, index.phase, index.round, client).random())
