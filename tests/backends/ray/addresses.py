"""Clusters of several nodes on this machine, and the loopback addresses of nodes that tests start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def loopback(node: int) -> str:
    """The address of a node: tests in other processes have others, since agents of Ray compete for a port on one."""
    return f"127.0.{WORKER}.{node}"


@contextmanager
def connected_cluster(health_check_ms: int, **head: Any) -> Iterator[Cluster]:
    """A cluster to which this process is connected; Ray takes a node for dead after three missed health checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_health_check_period_ms", str(health_check_ms))
        patch.setenv("RAY_health_check_failure_threshold", "3")
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            ray.init(address=made.address, _node_ip_address=head["node_ip_address"], log_to_driver=False)
            yield made
        finally:
            ray.shutdown()
            made.shutdown()
