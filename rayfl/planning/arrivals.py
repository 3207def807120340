"""Asynchronous training by the virtual clock: when clients begin, and which answers each server step uses."""

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
    """A client update in flight. Updates that end at the same time are ordered by client number.

    Attributes:
        ends: Time in virtual seconds, on the clock of `Arrivals`, when the server has its answer or knows that it
            drops out.
        client: The client's number.
        round: Number of the round in which it began.
        answers: Whether its answer arrives.
    """

    ends: float
    client: int
    round: int
    answers: bool = True


@dataclass(frozen=True)
class Step:
    """The events up to a server step.

    Attributes:
        started: Clients that began since the previous step, from its model, in order.
        taken: Updates whose answers the server uses, in order of arrival.
        lost: Updates that ended without an answer, in order.
    """

    started: Sequence[int]
    taken: Sequence[Update]
    lost: Sequence[Update]


class Arrivals:
    """Clients that train concurrently, each for as long as it takes.

    Answers that arrive at the same moment are processed before free places are filled, so that clients that begin then
    get the latest model. A place goes to the first of the round's candidates that is not training and has not begun in
    this round, since it would repeat its update from the same model. Without such a candidate the place stays free.

    Attributes:
        clock: The time in virtual seconds.
        in_flight: The updates that have not ended, in no particular order.

    Args:
        concurrency: Number of clients that train at a time.
        buffer: Number of answers for a server step.
        clock: Initial time.
        in_flight: Updates that began earlier.
    """

    def __init__(self, concurrency: int, buffer: int, clock: float = 0.0, in_flight: Iterable[Update] = ()) -> None:
        self._concurrency, self._buffer = concurrency, buffer
        self.clock, self.in_flight = clock, list(in_flight)
        heapq.heapify(self.in_flight)

    def step(self, round: int, candidates: Sequence[int], begin: Callable[[int, float], Participant | None]) -> Step:
        """Advances to the next server step.

        Args:
            round: The round's number.
            candidates: Clients in the order in which they take free places.
            begin: Returns how a client's update that begins at a given time goes; None if the client is unavailable.

        Returns:
            The step. It has fewer answers than a full buffer, possibly none, only if no update is left in flight.
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
        """Gives free places to waiting clients; removes these from `waiting` and returns them."""
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
    """The times and traffic of a round that ends with a server step.

    The traffic and energy of an update count in the round in which it ends.

    Args:
        clock: The run's clock, at the end of the previous round.
        index: The round.
        step: The events in the round.
        until: When the round ends, in virtual seconds since the start of the run.
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
