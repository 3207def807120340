"""Host and server as actors: the server keeps the reference to the data, of which every node holds one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import ray

from rayfl.config.scenario import Scenario
from rayfl.data.store import ShardStore
from rayfl.engine.host import Host
from rayfl.engine.server import Server

StoreBox = list["ray.ObjectRef[ShardStore]"]
"""One reference in a list, where Ray leaves it a reference."""


class ServerActor(Server):
    def __init__(
        self, scenario: Scenario, initial: np.ndarray, num_params: int, num_clients: int, store: StoreBox
    ) -> None:
        super().__init__(scenario, initial, num_params, num_clients)
        self._store = store

    def store(self) -> StoreBox:
        return self._store


class HostActor(Host):
    """Asks the server, by name, for the data: an argument of its own may be gone when Ray starts the actor anew."""

    def __init__(self, index: int, scenario: Scenario, server: str) -> None:
        keeper: Any = ray.get_actor(server)
        box: Any = ray.get(keeper.store.remote())
        super().__init__(index, scenario, ray.get(box[0]))

    def describe(self) -> dict[str, str]:
        return super().describe() | {"node": ray.util.get_node_ip_address()}
