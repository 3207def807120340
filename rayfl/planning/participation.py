"""Which clients of a drawn cohort take part in a round, and when by the virtual clock; precedes every schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rayfl.planning.round_index import RoundIndex


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
        """See `Participation.of`."""
        return [Participant(client) for client in cohort]
