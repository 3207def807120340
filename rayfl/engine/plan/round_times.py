"""Rounds by the virtual clock: which answers count, how long rounds take, and the traffic of unused updates.

In asynchronous training: when clients begin, and which answers each server step uses.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rayfl.engine.plan.participation import ExchangeTime, Participant, VirtualClock
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.totals import Simulated, Traffic


@dataclass(frozen=True)
class RoundTimes:
    """The course of a round.

    Attributes:
        counted: The clients whose answers count, in the order drawn.
        simulated: The round's contribution to the run's simulated totals.
        unanswered: Protocol traffic of updates that do not count, by client.
    """

    counted: Sequence[int]
    simulated: Simulated
    unanswered: Mapping[int, Traffic] = field(default_factory=dict)


_NONE = Simulated(joules=0.0, transfer=0.0, training=0.0)


def _of_devices(clock: VirtualClock, times: Mapping[int, ExchangeTime], until: float = math.inf) -> Simulated:
    """What the devices of clients spend in an exchange, up to `until` virtual seconds after its start."""
    spent = [time.until(until) for time in times.values()]
    return Simulated(
        joules=math.fsum(clock.joules(client, time, until) for client, time in times.items()),
        transfer=math.fsum(one.transfer for one in spent),
        training=math.fsum(one.compute for one in spent),
    )


def parallel_round(
    clock: VirtualClock,
    index: RoundIndex,
    participants: Sequence[Participant],
    most: int,
    deadline_s: float | None = None,
    quorum: int = 1,
) -> RoundTimes:
    """A round in which clients train at once.

    Every exchange lasts until `most` answers have arrived, until no answer is outstanding, or until the deadline,
    whichever comes first. Clients that have answered take part in the next exchange. Of simultaneous answers, those of
    clients that were drawn earlier come first. A client that drops out does so in the first exchange, when its answer
    is due, which is when the server notices. Clients that are cut stop at once.

    Args:
        clock: The run's clock, at the beginning of the round.
        index: The round.
        participants: The clients that take part, in the order drawn.
        most: The largest number of answers that count.
        deadline_s: Deadline of an exchange, in virtual seconds.
        quorum: With fewer answers than this, none counts.
    """
    times = {one.client: clock.exchanges(index, one.client) for one in participants}
    lost = {one.client for one in participants if not one.answers}
    messages = clock.messages(index)
    counted, total = [one.client for one in participants], _NONE
    unanswered: dict[int, Traffic] = {}
    moved = Traffic()
    late = 0
    for exchange, message in enumerate(messages):
        ends = {client: times[client][exchange].seconds for client in counted}
        limit = math.inf if deadline_s is None else deadline_s
        arriving = sorted((client for client in counted if client not in lost), key=ends.__getitem__)
        first = dict.fromkeys([client for client in arriving if ends[client] <= limit][:most])  # in order
        enough = len(first) == most
        stop = ends[next(reversed(first))] if enough and first else min(limit, max(ends.values(), default=0.0))
        total += _of_devices(clock, {client: times[client][exchange] for client in counted}, stop) + Simulated(stop)
        for client in counted:
            if client not in first:
                unanswered[client] = moved + message.down
                late += client not in lost
        counted = [client for client in counted if client in first]
        moved, most = moved + message.down + message.up, len(counted)
    dropped = len(unanswered) - late
    if len(counted) < quorum:
        unanswered |= dict.fromkeys(counted, moved)
        counted = []
    return RoundTimes(counted, total + Simulated(dropped=dropped, late=late), unanswered)


def relay_round(clock: VirtualClock, index: RoundIndex, participants: Sequence[Participant]) -> RoundTimes:
    """A relay's round: one hop after another.

    A client that is not available when its hop begins is skipped, which takes no time and no traffic; if no client is
    available at the beginning, the round waits for the first. A client that drops out is noticed when its answer is
    due; the model that it received then goes to the next client unchanged.

    Args:
        clock: The run's clock, at the beginning of the round.
        index: The round.
        participants: The clients that take part, in order.
    """
    (message,) = clock.messages(index)
    counted: list[int] = []
    unanswered: dict[int, Traffic] = {}
    begins = clock.first_available((one.client for one in participants), clock.now)
    begins = clock.now if begins == math.inf else begins
    total = _NONE
    for client in (one.client for one in participants):
        at = begins + total.seconds
        if not clock.is_available(index, client, at):
            total += Simulated(unavailable=1)
            unanswered[client] = Traffic()
            continue
        (time,) = clock.exchanges(index, client)
        answers = clock.update(index, client, at).answers
        total += _of_devices(clock, {client: time}) + Simulated(time.seconds, dropped=int(not answers))
        if answers:
            counted.append(client)
        else:
            unanswered[client] = message.down
    return RoundTimes(counted, total + Simulated(begins - clock.now), unanswered)


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

    def step(
        self,
        round: int,
        candidates: Sequence[int],
        begin: Callable[[int, float], Participant | None],
        first_available: Callable[[Iterable[int], float], float] = lambda clients, at: math.inf,
    ) -> Step:
        """Advances to the next server step.

        Args:
            round: The round's number.
            candidates: Clients in the order in which they take free places.
            begin: Returns how a client's update that begins at a given time goes; None if the client is unavailable.
            first_available: Returns when, from a given time on, the first of some clients is available; infinity if
                none is again.

        Returns:
            The step. It has fewer answers than a full buffer, possibly none, only if no update is left in flight and
            no candidate will be available.
        """
        waiting = dict.fromkeys(candidates)
        started: list[int] = []
        taken: list[Update] = []
        lost: list[Update] = []
        while len(taken) < self._buffer:
            if not self.in_flight or self.in_flight[0].ends > self.clock:
                started += self._fill(round, waiting, begin)
                if not self.in_flight:
                    later = first_available(waiting, self.clock)
                    if not self.clock < later < math.inf:
                        break
                    self.clock = later
                    continue
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
            if client not in busy and (participant := begin(client, self.clock)) is not None:
                ends = self.clock + participant.begins + participant.ends
                heapq.heappush(self.in_flight, Update(ends, client, round, participant.answers))
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
    total = _NONE + Simulated(until - clock.now, dropped=len(step.lost))
    for update in (*step.taken, *step.lost):
        since = index.round - update.round
        began = RoundIndex(index.phase, update.round, index.round_in_phase - since)
        (time,) = clock.exchanges(began, update.client)
        total += _of_devices(clock, {update.client: time})
    unanswered: dict[int, Traffic] = {}
    for update in step.lost:
        unanswered[update.client] = unanswered.get(update.client, Traffic()) + message.down
    return RoundTimes([update.client for update in step.taken], total, unanswered)
