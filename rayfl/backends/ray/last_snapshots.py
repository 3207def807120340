"""The latest snapshots of a run on a cluster, from which it continues if an actor is lost."""

from __future__ import annotations

from collections import deque

from rayfl.backends.ray.attempt import Attempt
from rayfl.backends.ray.log import RayLog
from rayfl.config.scenario import Scenario
from rayfl.engine.server import BEFORE, stored_model
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import DamagedStateError, StateStore
from rayfl.models.tensors import SentModel


class LastSnapshots:
    """The latest snapshots, `checkpoint.keep` of them.

    Args:
        scenario: The run's scenario.
        log: Receives a message about each snapshot that cannot be used.

    Attributes:
        store: Holds the snapshots' states; None as long as there are none.
        are_taken: Whether more are taken as the run goes on.
    """

    store: StateStore | None = None
    are_taken = False

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
        return snapshot.index.round, stored_model(self.store, snapshot.server.latest)
