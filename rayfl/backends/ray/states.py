"""The states of a run on a cluster, and the policies that decide on recovery and growth; needs no Ray."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rayfl.errors import ResourceError

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class State(Enum):
    """What a run on a cluster is doing."""

    STARTING = "its actors start, and no round has begun"
    RUNNING = "rounds run"
    RECOVERING = "new actors replace those that were lost"
    STOPPING = "it ends after the current round, or after one that was named"
    OVER = "it has ended"
    GIVEN_UP = "it was lost, and does not try again"


FOLLOWING = {
    State.STARTING: {State.RUNNING, State.STOPPING, State.RECOVERING},
    State.RUNNING: {State.RECOVERING, State.STOPPING, State.OVER},
    State.RECOVERING: {State.RUNNING, State.STOPPING, State.GIVEN_UP},
    State.STOPPING: {State.RECOVERING, State.OVER},
    State.OVER: {State.RECOVERING},  # the server may die before the final model is read
    State.GIVEN_UP: set[State](),
}
"""The states that may follow each one."""


class RunStates:
    """Follows a run from state to state, and keeps how it was asked to end, which no recovery forgets.

    Attributes:
        state: The current state.
        interrupted: Whether the run was asked to end unfinished, after the current round.
        last_round: The round after which it was asked to end, or the first one behind it that can be the last.
        settled: Whether `last_round` is known to be the last.
    """

    def __init__(self) -> None:
        self.state = State.STARTING
        self.interrupted = self.settled = False
        self.last_round: int | None = None

    def enter(self, state: State) -> None:
        """Enters a state.

        Raises:
            RuntimeError: It cannot follow the current one.
        """
        if state is not self.state and state not in FOLLOWING[self.state]:
            raise RuntimeError(f"a run cannot pass from {self.state.name} to {state.name}")
        self.state = state

    def begin(self) -> None:
        """Rounds run from now on, for the first time or again: the last ones if the run was asked to end."""
        self.enter(State.STOPPING if self.interrupted or self.settled else State.RUNNING)

    def interrupt(self) -> None:
        """Ends the run unfinished after the current round; other threads and signal handlers may call this."""
        self.interrupted = True
        if self.state is State.RUNNING:
            self.state = State.STOPPING

    def stop(self, round: int, settled: bool) -> None:
        """Ends the run after a round.

        Args:
            round: The round; the first request counts until a round has settled.
            settled: Whether the round has settled, and is the last for certain.
        """
        if settled or self.last_round is None:
            self.last_round, self.settled = round, settled
        if settled and self.state is State.RUNNING:
            self.state = State.STOPPING

    @property
    def is_idle(self) -> bool:
        """Whether the run has ended by itself, so that nothing of it is under way on its actors."""
        return self.state is State.OVER and not self.interrupted and self.last_round is None


@dataclass(frozen=True)
class Chance:
    """One more attempt to continue.

    Attributes:
        number: Attempts since a round was last committed for the first time, including this one.
        most: The largest allowed number of attempts.
        pause_s: How long to wait first, since the cause may go away.
    """

    number: int
    most: int
    pause_s: float


class RecoveryPolicy:
    """Decides whether a run tries again; without limit as long as it makes progress in between.

    Args:
        most: The largest number of attempts in a row without a newly committed round.
        repeatable: Whether rounds may be repeated (`Scenario.repeatable`).

    Attributes:
        furthest: The last round that was ever committed.
    """

    def __init__(self, most: int, repeatable: bool = True) -> None:
        self._most, self._repeatable, self._in_row, self.furthest = most, repeatable, 0, 0

    def reached(self, round: int) -> None:
        """Records that a round was committed, for the first time or again."""
        if round > self.furthest:
            self.furthest, self._in_row = round, 0

    def next(self, error: ResourceError) -> Chance:
        """Returns the next attempt to continue.

        Args:
            error: The error that stopped the run or its latest attempt.

        Raises:
            ResourceError: That error, if the policy gives up; its message says why.
        """
        if self._in_row >= self._most:
            error.args = (f"{error}; {self._gives_up()}",)
            raise error
        self._in_row += 1
        return Chance(self._in_row, self._most, min(FIRST_PAUSE_S * 2 ** (self._in_row - 1), LONGEST_PAUSE_S))

    def _gives_up(self) -> str:
        if not self._repeatable:
            return (
                "the run does not continue by itself, since with `secure` noise a repeated update spends privacy "
                "again; `rayfl resume` continues after the last checkpoint and charges all repeated updates"
            )
        if not self._most:
            return "the run does not try again (resources.restarts is 0)"
        times = "once" if self._most == 1 else f"{self._most} times"
        return f"the run tried {times} to continue (resources.restarts) without committing another round"


class GrowthPolicy:
    """Decides when a run asks for more hosts: the cluster has room for them, looked at once in a while.

    Args:
        every_s: How often to ask, in seconds.
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, every_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._clock = every_s, clock
        self.begin()

    def begin(self) -> None:
        """Waits anew, since the run has just begun on as many hosts as fit."""
        self._asked = self._clock()

    def wants(self, hosts: int, room: Callable[[], int]) -> bool:
        """Whether the run should ask for more now.

        Args:
            hosts: How many it has, or has asked for.
            room: Tells how many it could have; called at most every few seconds.
        """
        if self._clock() - self._asked < self._every_s:
            return False
        self.begin()
        return room() > hosts
