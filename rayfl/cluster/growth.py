"""Whether a cluster that has grown has room for more hosts of a run."""

from __future__ import annotations

from ray.util import get_current_placement_group

from rayfl.cluster.preflight import fitting, nodes
from rayfl.config.execution import Resources

ASKS_EVERY_S = 60.0
"""How often the cluster is asked: hosts are replaced for it, which takes some seconds."""


def hosts_with_room(resources: Resources, most: int, hosts: int) -> int:
    """How many hosts a run could have now.

    Args:
        resources: What the scenario asks for: hosts beyond its number are not wanted, even where there is room.
        most: More of them would have nothing to do.
        hosts: How many it has.
    """
    wanted = most if resources.hosts == "auto" else resources.hosts
    if hosts >= wanted or get_current_placement_group() is not None:  # a trial's room does not grow
        return hosts
    return min(wanted, hosts + sum(fitting(resources, node.free) for node in nodes()))
