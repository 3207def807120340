"""The server as an actor: it also keeps the reference to the data, of which every node holds one copy."""

from __future__ import annotations

import numpy as np
import ray

from rayfl.config.scenario import Scenario
from rayfl.data.store import ShardStore
from rayfl.engine.server import Server

StoreBox = list["ray.ObjectRef[ShardStore]"]
"""One reference in a list, where Ray leaves it a reference."""


class ServerActor(Server):
    """A process without PyTorch, which starts while the hosts still load it."""

    def __init__(
        self, scenario: Scenario, initial: np.ndarray, num_params: int, num_clients: int, store: StoreBox
    ) -> None:
        super().__init__(scenario, initial, num_params, num_clients)
        self._store = store

    def store(self) -> StoreBox:
        return self._store
