"""Rounds by the virtual clock: which answers count, how long rounds take, and the traffic of unused updates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rayfl.planning.participation import Participant
from rayfl.planning.round_index import RoundIndex
from rayfl.planning.totals import Simulated, Traffic
from rayfl.planning.virtual_clock import VirtualClock


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
    counted, seconds, joules = [one.client for one in participants], 0.0, 0.0
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
        joules += math.fsum(clock.joules(client, times[client][exchange], stop) for client in counted)
        for client in counted:
            if client not in first:
                unanswered[client] = moved + message.down
                late += client not in lost
        counted = [client for client in counted if client in first]
        moved, seconds, most = moved + message.down + message.up, seconds + stop, len(counted)
    dropped = len(unanswered) - late
    if len(counted) < quorum:
        unanswered |= dict.fromkeys(counted, moved)
        counted = []
    return RoundTimes(counted, Simulated(seconds, joules, 0, dropped, late), unanswered)


def relay_round(clock: VirtualClock, index: RoundIndex, participants: Sequence[Participant]) -> RoundTimes:
    """A relay's round: one hop after another.

    A client that is not available when its hop begins is skipped, which takes no time and no traffic. A client that
    drops out is noticed when its answer is due; the model that it received then goes to the next client unchanged.

    Args:
        clock: The run's clock, at the beginning of the round.
        index: The round.
        participants: The clients that take part, in order.
    """
    (message,) = clock.messages(index)
    counted: list[int] = []
    unanswered: dict[int, Traffic] = {}
    total = Simulated(joules=0.0)
    for client in (one.client for one in participants):
        at = clock.now + total.seconds
        if not clock.is_available(index, client, at):
            total += Simulated(unavailable=1)
            unanswered[client] = Traffic()
            continue
        (time,) = clock.exchanges(index, client)
        answers = clock.update(index, client, at).answers
        total += Simulated(time.seconds, clock.joules(client, time), dropped=int(not answers))
        if answers:
            counted.append(client)
        else:
            unanswered[client] = message.down
    return RoundTimes(counted, total, unanswered)
