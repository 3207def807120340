"""Decides whether a cluster that has grown has room for more hosts of a run."""

from __future__ import annotations

from ray.util import get_current_placement_group

from rayfl.cluster.preflight import fitting, nodes
from rayfl.config.execution import Resources

ASKS_EVERY_S = 60.0
"""How often to look for room: adding hosts replaces the present ones, which takes some seconds."""


def hosts_with_room(resources: Resources, most: int, hosts: int) -> int:
    """How many hosts a run could have now.

    Args:
        resources: The scenario's resources; a number of hosts there is an upper limit.
        most: The most hosts that would have any work.
        hosts: How many the run has.
    """
    wanted = most if resources.hosts == "auto" else resources.hosts
    if hosts >= wanted or get_current_placement_group() is not None:  # a trial's resources do not grow
        return hosts
    return min(wanted, hosts + sum(fitting(resources, node.free) for node in nodes()))
