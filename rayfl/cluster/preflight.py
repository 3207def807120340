"""What the cluster has, what the scenario asks for, and how many hosts that makes: checked before any actor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import ray

from rayfl.config.execution import Resources
from rayfl.errors import ResourceError


def plan_hosts(resources: Resources, num_clients: int) -> int:
    """The number of hosts to start on the cluster we are attached to.

    Raises:
        ResourceError: they do not fit; says what there is, what was asked, and the largest number that fits.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return hosts_that_fit(resources, num_clients, nodes, ray.available_resources())


def hosts_that_fit(
    resources: Resources, num_clients: int, nodes: Sequence[Mapping[str, float]], free: Mapping[str, float]
) -> int:
    """As `plan_hosts`, from each node's resources and the whole cluster's free ones; more hosts than clients idle."""
    ask = {"CPU": resources.cpus_per_host, "GPU": resources.gpus_per_host}
    ask = {kind: amount for kind, amount in ask.items() if amount}
    by_node = sum(min(_times(node.get(kind, 0), amount) for kind, amount in ask.items()) for node in nodes)
    largest = min(by_node, *(_times(free.get(kind, 0), amount) for kind, amount in ask.items()))
    wanted = min(largest, num_clients) if resources.hosts == "auto" else resources.hosts
    if wanted and wanted <= largest:
        return wanted
    there = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes)
    what = "1 host" if resources.hosts == "auto" else f"{wanted} hosts"
    per_host = ", ".join(f"{amount:g} {kind}" for kind, amount in ask.items())
    advice = f"the largest resources.hosts that fits is {largest}"
    if not largest:
        advice = "not even one fits: ask for less with resources.cpus_per_host or resources.gpus_per_host"
    raise ResourceError(
        f"{what} with {per_host} each do not fit the Ray cluster of {len(nodes)} node{'s' * (len(nodes) != 1)} "
        f"({there}; free: {free.get('CPU', 0):g} CPUs, {free.get('GPU', 0):g} GPUs): {advice}"
    )


def _times(have: float, each: float) -> int:
    """How often `each` goes into `have`; fractions such as 1 / 0.1 are whole."""
    return math.floor(have / each + 1e-9)
