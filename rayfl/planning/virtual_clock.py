"""The virtual clock of a run: who is available, how long updates take, who drops out, and what devices draw.

Everything follows from the scenario, so that it is known before a client trains.
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
        down: Until it has the server's message.
        compute: From then until it has computed its answer.
        up: From then until the answer is in.
    """

    down: float = 0.0
    compute: float = 0.0
    up: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.down + self.compute + self.up


class VirtualClock:
    """The clock of a run, and the `Participation` of its rounds: what one begins with and how it ends for each client.

    Attributes:
        simulated: Up to the end of the last round that was submitted.

    Args:
        seed: The scenario's.
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
        """Virtual seconds since the start of the run, at the end of the last round that was submitted."""
        return self.simulated.seconds

    def present(self, index: RoundIndex, cohort: Sequence[int]) -> list[int]:
        """Those of a drawn cohort who are available when the round begins; `pass_round` counts the others."""
        here = [client for client in cohort if self.is_available(index, client, self.now)]
        self._unavailable = len(cohort) - len(here)
        return here

    def is_available(self, index: RoundIndex, client: int, at: float) -> bool:
        """Whether a client is available at a virtual second of the run; by probability, it is so for a whole round."""
        if self._devices.sessions is not None:
            return self._devices.sessions.until(client, at) is not None
        share = self._devices.of("availability", client)
        return share is None or share >= 1 or self._draw(index, "availability", client) < share

    def of(self, index: RoundIndex, cohort: Sequence[int]) -> Sequence[Participant]:
        """See `Participation.of`: the updates of all of them, begun when the round begins."""
        return [self.update(index, client, self.now) for client in cohort]

    def update(self, index: RoundIndex, client: int, at: float) -> Participant:
        """What becomes of an update that an available client begins at a virtual second of the run.

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
        """What a client's device draws in an exchange, or in its first virtual seconds."""
        down = min(time.down, until)
        compute = min(time.compute, max(until - time.down, 0.0))
        up = min(time.up, max(until - time.down - time.compute, 0.0))
        transmit = self._devices.of("transmit_watts", client) or 0.0
        return (down + up) * transmit + compute * (self._devices.of("compute_watts", client) or 0.0)

    def check(self, index: RoundIndex, answers: int, moved: Traffic) -> None:
        """Checks that a round moved what was planned, whatever the algorithm.

        Args:
            index: The round.
            answers: How many client updates it had.
            moved: What the hosts counted for them.

        Raises:
            RayflError: It moved something else.
        """
        for way, planned, found in (
            ("down", sum(message.down.down_bytes for message in self.messages(index)), moved.down_bytes),
            ("up", sum(message.up.up_bytes for message in self.messages(index)), moved.up_bytes),
        ):
            if found != answers * planned:
                phase = self._phases[index.phase]
                raise RayflError(
                    f"phases.{phase.name}: round {index.round} moved {found} bytes {way} for {answers} client updates, "
                    f"and the virtual clock of [participation] was planned with {planned} for each; let messages() of "
                    f"'{phase.algorithm.name}' say what its exchanges move, and planned() of its transforms"
                )

    def pass_round(self, round: Simulated) -> Simulated:
        """Moves the clock by a round that is submitted; adds those that `present` found unavailable.

        Returns:
            What the run has simulated at its end, for `SubmittedRound.simulated`.
        """
        self.simulated += replace(round, unavailable=round.unavailable + self._unavailable)
        self._unavailable = 0
        return self.simulated

    def restore(self, simulated: Simulated) -> None:
        """Goes on after a committed round."""
        self.simulated, self._unavailable = simulated, 0

    def _draw(self, index: RoundIndex, purpose: str, client: int) -> float:
        return float(client_stream(self._seed, purpose, index.phase, index.round, client).random())
