"""The last committed round of every client that keeps state: counted by the scheduler and by the clients' hosts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rayfl.local.state import Scope
from rayfl.planning.round_index import RoundIndex

KEPT: tuple[Scope, Scope] = ("phase", "run")
"""The scopes of what clients keep beyond a round."""

KeptState = tuple[int, Scope, int]
"""A client, the scope of a state that it keeps, and the round that left it."""


class CommittedRounds:
    """By client, the last round that left it a state; clients that keep none cost nothing.

    Both sides count by the same rule, so that a difference means that something was lost or came out of order.
    """

    def __init__(self) -> None:
        self._phase = 0
        self._rounds: dict[Scope, dict[int, int]] = {scope: {} for scope in KEPT}

    def enter(self, phase: int) -> bool:
        """Forgets what an earlier phase kept for itself; returns whether this one has just begun."""
        if phase <= self._phase:
            return False
        self._phase, self._rounds["phase"] = phase, {}
        return True

    def commit(self, index: RoundIndex, clients: Iterable[int], declared: Collection[Scope]) -> None:
        """Counts a committed round.

        Args:
            index: The round.
            clients: Who took part.
            declared: The scopes of what its phase keeps.
        """
        self.enter(index.phase)
        for client in clients:
            for scope, rounds in self._rounds.items():
                # what an earlier phase keeps through the run passes through this one's updates
                if scope in declared or (scope == "run" and client in rounds):
                    rounds[client] = index.round

    def of(self, client: int, phase: int) -> int | None:
        """The last round that left a client a state which it still has in a phase; None where there is none."""
        found = [self._rounds[scope].get(client) for scope in self._scopes(phase)]
        return max((round for round in found if round is not None), default=None)

    def among(self, clients: Iterable[int], phase: int) -> dict[int, int]:
        """`of` for those of some clients that have a state."""
        return {client: round for client in clients if (round := self.of(client, phase)) is not None}

    def items(self, phase: int) -> Iterator[KeptState]:
        """All states that are still there in a phase."""
        for scope in self._scopes(phase):
            for client, round in self._rounds[scope].items():
                yield client, scope, round

    def restore(self, phase: int, kept: Iterable[KeptState]) -> None:
        """Continues in a phase with what `items` gave."""
        self._phase, self._rounds = phase, {scope: {} for scope in KEPT}
        for client, scope, round in kept:
            self._rounds[scope][client] = round

    def _scopes(self, phase: int) -> tuple[Scope, ...]:
        """Those of which something is still there in a phase."""
        return KEPT if phase == self._phase else ("run",)
