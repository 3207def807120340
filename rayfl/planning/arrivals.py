"""Asynchronous training by the virtual clock: who begins when, and whose answers each step of the server takes in."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rayfl.planning.participation import Participant
from rayfl.planning.round_index import RoundIndex
from rayfl.planning.round_times import RoundTimes
from rayfl.planning.totals import Simulated, Traffic
from rayfl.planning.virtual_clock import VirtualClock


@dataclass(frozen=True, order=True)
class Update:
    """A client's update in flight. Those that end at the same time come in the order of client numbers.

    Attributes:
        ends: Virtual seconds, on the clock of `Arrivals`, when its answer is in, or it is known that there is none.
        client: The client's number.
        round: Number of the round in which it began.
        answers: Whether there is an answer.
    """

    ends: float
    client: int
    round: int
    answers: bool = True


@dataclass(frozen=True)
class Step:
    """What happens up to a step of the server.

    Attributes:
        started: The clients that began since the step before, from the model that it left, in order.
        taken: The updates whose answers the server takes in, in the order in which they came.
        lost: Those that ended without an answer, likewise.
    """

    started: Sequence[int]
    taken: Sequence[Update]
    lost: Sequence[Update]


class Arrivals:
    """Clients that train at the same time, each for as long as it takes.

    What comes in at the same moment is taken in before free places are filled, so that who begins then has the latest
    model. A place goes to the first of the round's candidates who does not train and has not begun in this round: from
    the same model it would repeat its update. Where there is none, the place waits.

    Attributes:
        clock: Virtual seconds.
        in_flight: The updates that have not ended, in no order.

    Args:
        concurrency: How many clients train at a time.
        buffer: How many answers make a step of the server.
        clock: Where the clock begins.
        in_flight: Updates that have begun before.
    """

    def __init__(self, concurrency: int, buffer: int, clock: float = 0.0, in_flight: Iterable[Update] = ()) -> None:
        self._concurrency, self._buffer = concurrency, buffer
        self.clock, self.in_flight = clock, list(in_flight)
        heapq.heapify(self.in_flight)

    def step(self, round: int, candidates: Sequence[int], begin: Callable[[int, float], Participant | None]) -> Step:
        """Goes on to the next step of the server.

        Args:
            round: The round's number.
            candidates: Clients in the order in which they take free places.
            begin: What becomes of a client's update that begins at a time; None where the client is not available.

        Returns:
            The step, of fewer answers than a whole buffer, down to none, only where nobody is left to wait for.
        """
        waiting = dict.fromkeys(candidates)
        started: list[int] = []
        taken: list[Update] = []
        lost: list[Update] = []
        while len(taken) < self._buffer:
            if not self.in_flight or self.in_flight[0].ends > self.clock:
                started += self._fill(round, waiting, begin)
                if not self.in_flight:
                    break
            ended = heapq.heappop(self.in_flight)
            self.clock = ended.ends
            (taken if ended.answers else lost).append(ended)
        return Step(started, taken, lost)

    def _fill(
        self, round: int, waiting: dict[int, None], begin: Callable[[int, float], Participant | None]
    ) -> list[int]:
        """Gives free places to clients that wait for one; takes them out of those, and returns them."""
        busy = {update.client for update in self.in_flight}
        started: list[int] = []
        for client in waiting:
            if len(self.in_flight) == self._concurrency:
                break
            if client not in busy and (told := begin(client, self.clock)) is not None:
                ends = self.clock + told.begins + told.ends
                heapq.heappush(self.in_flight, Update(ends, client, round, told.answers))
                started.append(client)
        for client in started:
            del waiting[client]
        return started


def step_times(clock: VirtualClock, index: RoundIndex, step: Step, until: float) -> RoundTimes:
    """How a round goes that ends with a step of the server.

    What updates move and use counts in the round in which they end.

    Args:
        clock: The run's, at the end of the round before.
        index: The round.
        step: What happens in it.
        until: When it ends, in virtual seconds since the start of the run.
    """
    (message,) = clock.messages(index)
    joules = 0.0
    for update in (*step.taken, *step.lost):
        since = index.round - update.round
        began = RoundIndex(index.phase, update.round, index.round_in_phase - since)
        (time,) = clock.exchanges(began, update.client)
        joules += clock.joules(update.client, time)
    unanswered: dict[int, Traffic] = {}
    for update in step.lost:
        unanswered[update.client] = unanswered.get(update.client, Traffic()) + message.down
    simulated = Simulated(until - clock.now, joules, dropped=len(step.lost))
    return RoundTimes([update.client for update in step.taken], simulated, unanswered)
