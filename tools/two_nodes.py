"""A cluster of two nodes on this machine, one of which is killed and replaced."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.cluster_utils import Cluster

from rayfl.backends.ray.log import RayLog, ray_text_in

HEAD = "127.0.3.1"
NODE_TRIES = 3


class TwoNodes:
    """The node of the driver and another one, with one CPU each.

    Attributes:
        address: The address that programs connect to.
    """

    def __init__(self) -> None:
        self._cluster = Cluster(initialize_head=True, head_node_args=_node(HEAD) | {"include_dashboard": False})
        self.address: str = self._cluster.address
        self._added = 0
        self._other = self._add()

    def _add(self) -> Any:
        """Adds a node; tries again if it takes longer to start than Ray waits, as on a busy machine."""
        for _ in range(NODE_TRIES - 1):
            try:
                return self._start()
            except Exception as error:  # Ray raises a plain Exception
                print(f"trying another node: {error}", file=sys.stderr)
        return self._start()

    def _start(self) -> Any:
        self._added += 1
        return self._cluster.add_node(**_node(f"127.0.4.{self._added % 250 + 1}"))

    def replace_node(self, first: bool) -> None:
        """Kills the other node and adds a new one, before (`first`) or after that."""
        lost = self._other
        if first:
            self._other = self._add()
        self._cluster.remove_node(lost, allow_graceful=False)
        if not first:
            self._other = self._add()

    def end(self) -> None:
        """Ends both nodes."""
        self._cluster.shutdown()


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """Starts both nodes, connects this program, and ends both."""
    # notices a dead node after about 3 s instead of 20 s
    settings = {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}
    os.environ.update(settings | {"RAY_USAGE_STATS_ENABLED": "0"})
    cluster = TwoNodes()
    try:
        with ray_text_in(RayLog()):
            ray.init(address=cluster.address, _node_ip_address=HEAD, log_to_driver=False)
            yield cluster
    finally:
        ray.shutdown()
        cluster.end()


def _node(address: str) -> dict[str, Any]:
    return {"num_cpus": 1, "num_gpus": 0, "node_ip_address": address, "object_store_memory": 100 * 2**20}
