"""Recovery after an actor or node dies: the policy, and the latest snapshots, from which new actors continue.

The policy is whether to try again, after which pause, and when to give up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rayfl.backends.ray.attempt import Attempt
from rayfl.backends.ray.log import RayLog
from rayfl.config.scenario import Scenario
from rayfl.engine.server import BEFORE, stored_model
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import DamagedStateError, StateStore
from rayfl.errors import ResourceError
from rayfl.models.tensors import SentModel

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


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


class Recoveries:
    """The recoveries of one run; their number is unlimited as long as the run makes progress in between.

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


class LastSnapshots:
    """The latest snapshots, `checkpoint.keep` of them.

    Args:
        scenario: The run's scenario.
        log: Receives a message about each snapshot that cannot be used.

    Attributes:
        store: Holds the snapshots' states; None as long as there are none.
    """

    store: StateStore | None = None

    def __init__(self, scenario: Scenario, log: RayLog) -> None:
        self._scenario, self._log = scenario, log
        self._snapshots: deque[RunSnapshot] = deque(maxlen=scenario.checkpoint.keep)

    def add(self, snapshot: RunSnapshot) -> None:
        """Adds a later snapshot."""
        self._snapshots.append(snapshot)

    def any(self) -> bool:
        """Whether there is a snapshot to continue from."""
        return bool(self._snapshots)

    def after(self) -> tuple[str, int]:
        """The phase and the number of the round after which the next attempt begins."""
        index = self._snapshots[-1].index if self._snapshots else BEFORE
        return index.config(self._scenario).name, index.round

    def restore(self, attempt: Attempt) -> None:
        """Makes new actors continue from the latest intact snapshot; without one they begin at the beginning.

        Raises:
            LostError: One of the actors died.
        """
        while self._snapshots:
            try:
                attempt.tell("restore", self._snapshots[-1], self.store)
                return
            except DamagedStateError as error:
                self._log.write(f"the snapshot of round {self._snapshots[-1].index.round} cannot be used: {error}")
                self._snapshots.pop()

    def model(self) -> tuple[int, SentModel] | None:
        """The round of the latest snapshot and its model; None without a snapshot.

        Raises:
            DamagedStateError: The snapshot is damaged.
        """
        if not self._snapshots or self.store is None:
            return None
        snapshot = self._snapshots[-1]
        return snapshot.index.round, stored_model(self.store, snapshot.server.latest.stored)
