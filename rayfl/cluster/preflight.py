"""Checks before any actor starts how many hosts fit on the cluster."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray
from ray._private.state import available_resources_per_node

from rayfl.config.execution import Resources
from rayfl.errors import ResourceError

SETTLE_S = 3.0
"""How long Ray's figures of free resources may lag behind."""


class BusyError(ResourceError):
    """The hosts would fit if no one else used the cluster."""


@dataclass(frozen=True)
class Room:
    """The CPUs and GPUs of a node, or of a bundle of a placement group.

    Attributes:
        total: All of them, by kind.
        free: Those not in use, by kind.
    """

    total: Mapping[str, float]
    free: Mapping[str, float]


def nodes() -> list[Room]:
    """The living nodes of the cluster this program is attached to."""
    free = available_resources_per_node()
    return [Room(node["Resources"], free.get(node["NodeID"], {})) for node in ray.nodes() if node["Alive"]]


def plan_hosts(resources: Resources, most: int) -> int:
    """Decides how many hosts to start on the cluster this program is attached to.

    Args:
        resources: The scenario's resources.
        most: With `auto`, the largest number of hosts.

    Returns:
        The number of hosts.

    Raises:
        ResourceError: They do not fit; gives the cluster's resources, the request, and the largest number that fits.
    """
    check_device(resources)
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            return hosts_that_fit(resources, most, nodes())
        except BusyError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)  # Ray's figures lag behind the cluster, and it has no event for updates


def check_ever_fits(resources: Resources, hosts: int = 1) -> None:
    """Checks that a number of hosts fits on the cluster when it is idle.

    Raises:
        ResourceError: They do not fit; gives the cluster's resources and the request.
    """
    check_device(resources)
    fixed = resources.model_copy(update={"hosts": hosts})
    hosts_that_fit(fixed, hosts, [Room(room.total, room.total) for room in nodes()])


def check_device(resources: Resources) -> None:
    """Rejects CUDA without a share of a GPU: Ray would hide no GPU from such hosts, and all would use the first one.

    Raises:
        ResourceError: The scenario uses CUDA without a share of a GPU.
    """
    if resources.uses_cuda and not resources.gpus_per_host:
        raise ResourceError(
            "resources.device=cuda without a share of a GPU would put every worker on GPU 0: set "
            "resources.gpus_per_host (1, or a fraction for workers that share a GPU), or run with backend 'inline'"
        )


def hosts_that_fit(resources: Resources, most: int, rooms: Sequence[Room]) -> int:
    """As `plan_hosts`, for given nodes."""
    ever, now = (sum(fitting(resources, has) for has in each) for each in zip(*map(_both, rooms), strict=True))
    automatic = resources.hosts == "auto"
    wanted = 1 if resources.hosts == "auto" else resources.hosts
    if wanted <= now:
        return max(1, min(now, most)) if automatic else wanted
    asked = f"{wanted} worker{'s' * (wanted != 1)} with {_in_words(_asked(resources))}" + " each" * (wanted != 1)
    cluster = f"the Ray cluster of {len(rooms)} node{'s' * (len(rooms) != 1)}"
    if wanted <= ever:
        advice = f"set resources.hosts={now}, which fits now" if now else "nothing fits now"
        raise BusyError(
            f"{cluster} is busy: {asked} would fit, but not now, while {_free_in_words(rooms)}: wait until others have "
            f"finished (see `ray status`); {advice}"
        )
    there = "; ".join(
        _in_words({kind: room.total.get(kind, 0) for kind in ("CPU", "GPU")}) or "no CPU" for room in rooms
    )
    advice = f"the largest resources.hosts that fits is {ever}"
    if not ever:
        advice = "not even one fits: lower resources.cpus_per_host or resources.gpus_per_host"
    verb = "do" if wanted != 1 else "does"
    raise ResourceError(f"{asked} {verb} not fit on {cluster} ({there}; {_free_in_words(rooms)}): {advice}")


def _both(room: Room) -> tuple[Mapping[str, float], Mapping[str, float]]:
    return room.total, room.free


def _asked(resources: Resources) -> dict[str, float]:
    return {"CPU": resources.cpus_per_host, "GPU": resources.gpus_per_host}


def fitting(resources: Resources, has: Mapping[str, float]) -> int:
    """How many hosts fit on a node. A fraction of a GPU must lie on a single GPU; whole GPUs must be entirely free."""
    on_cpus = _times(has.get("CPU", 0), resources.cpus_per_host)
    share = resources.gpus_per_host
    if not share:
        return on_cpus
    whole, rest = divmod(has.get("GPU", 0) + 1e-9, 1)
    on_gpus = _times(whole, share) if share >= 1 else int(whole) * _times(1, share) + _times(rest, share)
    return min(on_cpus, on_gpus)


def _times(have: float, each: float) -> int:
    """How often `each` goes into `have`, allowing for rounding errors such as in 1 / 0.1."""
    return math.floor(have / each + 1e-9)


def _in_words(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {kind}{'s' * (amount > 1)}" for kind, amount in amounts.items() if amount)


def _free_in_words(rooms: Sequence[Room]) -> str:
    parts = []
    for kind in ("CPU", "GPU"):
        total, free = (sum(has.get(kind, 0) for has in each) for each in zip(*map(_both, rooms), strict=True))
        if total:
            parts.append(f"{free:g} of {total:g} {kind}{'s' * (total > 1)}")
    return f"{' and '.join(parts)} are free"
