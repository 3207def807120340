"""A host as an actor: one of the node's processes that map the same copy of the data."""

from __future__ import annotations

from typing import Any

import ray

from rayfl.config.scenario import Scenario
from rayfl.engine.host import Host


class HostActor(Host):
    """Asks the server, by name, for the data: an argument of its own may be gone when Ray starts the actor anew."""

    def __init__(self, index: int, scenario: Scenario, server: str) -> None:
        keeper: Any = ray.get_actor(server)
        box: Any = ray.get(keeper.store.remote())
        super().__init__(index, scenario, ray.get(box[0]))

    def describe(self) -> dict[str, str]:
        return super().describe() | {"node": ray.util.get_node_ip_address()}
