"""The last snapshots of a run on a cluster, which new actors go on from."""

from __future__ import annotations

from collections import deque

import numpy as np

from rayfl.cluster.attempt import Attempt
from rayfl.cluster.ray_log import RayLog
from rayfl.config.scenario import Scenario
from rayfl.engine.run_snapshot import RunSnapshot
from rayfl.engine.server import BEFORE
from rayfl.engine.state_store import DamagedStateError, StateStore


class LastSnapshots:
    """As many as `checkpoint.keep`.

    Args:
        scenario: What runs.
        log: Is told which of them cannot be used.

    Attributes:
        store: Where their states are; None as long as there are none.
    """

    store: StateStore | None = None

    def __init__(self, scenario: Scenario, log: RayLog) -> None:
        self._scenario, self._log = scenario, log
        self._snapshots: deque[RunSnapshot] = deque(maxlen=scenario.checkpoint.keep)

    def add(self, snapshot: RunSnapshot) -> None:
        """Takes in a later one."""
        self._snapshots.append(snapshot)

    def any(self) -> bool:
        """Whether there is one to go on from."""
        return bool(self._snapshots)

    def after(self) -> tuple[str, int]:
        """The phase and the number of the round after which another attempt begins."""
        index = self._snapshots[-1].index if self._snapshots else BEFORE
        return index.config(self._scenario).name, index.round

    def restore(self, attempt: Attempt) -> None:
        """Makes new actors go on after the last snapshot that is whole; without one they begin at the beginning.

        Raises:
            LostError: Something of them died.
        """
        while self._snapshots:
            try:
                attempt.tell("restore", self._snapshots[-1], self.store)
                return
            except DamagedStateError as error:
                self._log.write(f"the snapshot of round {self._snapshots[-1].index.round} cannot be used: {error}")
                self._snapshots.pop()

    def model(self) -> tuple[int, np.ndarray] | None:
        """The round of the last snapshot and its model, (parameters,) float32; None without a snapshot.

        Raises:
            DamagedStateError: It is damaged.
        """
        if not self._snapshots or self.store is None:
            return None
        snapshot = self._snapshots[-1]
        arrays = self.store.read(snapshot.server.latest.stored)
        return snapshot.index.round, arrays.get("eval_model", arrays["model"])
