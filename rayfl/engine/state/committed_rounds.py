"""The last committed round of every client that keeps state: recorded by the scheduler and by the clients' hosts."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rayfl.engine.plan.rounds import RoundIndex
from rayfl.local.state import Scope

KEPT: tuple[Scope, Scope] = ("phase", "run")
"""The scopes of client state that outlives a round."""

KeptState = tuple[int, Scope, int]
"""A client, the scope of a state that it keeps, and the round that left it."""


class CommittedRounds:
    """Maps clients to the last round that left them a state; clients without state cost nothing.

    Scheduler and hosts follow the same rule, so a difference means that something was lost or arrived out of order.
    """

    def __init__(self) -> None:
        self._phase = 0
        self._rounds: dict[Scope, dict[int, int]] = {scope: {} for scope in KEPT}

    def enter(self, phase: int) -> bool:
        """Drops state of scope `phase` when a later phase begins; returns whether it has just begun."""
        if phase <= self._phase:
            return False
        self._phase, self._rounds["phase"] = phase, {}
        return True

    def commit(self, index: RoundIndex, clients: Iterable[int], declared: Collection[Scope]) -> None:
        """Records a committed round.

        Args:
            index: The round.
            clients: The clients that took part.
            declared: The scopes of the state that its phase declares.
        """
        self.enter(index.phase)
        for client in clients:
            for scope, rounds in self._rounds.items():
                # state of scope `run` from an earlier phase passes through this phase's updates
                if scope in declared or (scope == "run" and client in rounds):
                    rounds[client] = index.round

    def of(self, client: int, phase: int) -> int | None:
        """Returns the last round that left a client a state which it still has in a phase; None without one."""
        rounds = [self._rounds[scope].get(client) for scope in self._scopes(phase)]
        return max((round for round in rounds if round is not None), default=None)

    def among(self, clients: Iterable[int], phase: int) -> dict[int, int]:
        """Returns `of` for those of the given clients that have a state."""
        return {client: round for client in clients if (round := self.of(client, phase)) is not None}

    def captured(self, phase: int) -> dict[Scope, dict[int, int]]:
        """Returns a copy of the rounds of all states that still exist in a phase, by scope and client."""
        scopes = self._scopes(phase)
        return {scope: dict(rounds) if scope in scopes else {} for scope, rounds in self._rounds.items()}

    def restore(self, phase: int, states: Iterable[KeptState]) -> None:
        """Continues in a phase with the states of a snapshot."""
        self._phase, self._rounds = phase, {scope: {} for scope in KEPT}
        for client, scope, round in states:
            self._rounds[scope][client] = round

    def _scopes(self, phase: int) -> tuple[Scope, ...]:
        """Returns the scopes whose states still exist in a phase."""
        return KEPT if phase == self._phase else ("run",)
