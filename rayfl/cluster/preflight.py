"""What the cluster has, what the scenario asks for, and how many hosts that makes: checked before any actor starts."""

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
"""How long Ray's figures of what is free may lag behind."""


class BusyError(ResourceError):
    """The hosts would fit, if nobody else used the cluster."""


@dataclass(frozen=True)
class Room:
    """The CPUs and GPUs of a node, or of a bundle of a placement group.

    Attributes:
        total: What it has, by kind.
        free: What of that nobody has taken.
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
        resources: What the scenario asks for.
        most: `auto` starts no more hosts than that.

    Returns:
        The number of hosts.

    Raises:
        ResourceError: They do not fit. Says what there is, what was asked, and the largest number that fits.
    """
    check_device(resources)
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            return hosts_that_fit(resources, most, nodes())
        except BusyError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)  # Ray's figures follow the cluster a moment later, and it has no event for that


def check_ever_fits(resources: Resources, hosts: int = 1) -> None:
    """Refuses what some hosts ask for if it does not fit the cluster, however long one waits.

    Raises:
        ResourceError: Says what there is, and what was asked.
    """
    check_device(resources)
    fixed = resources.model_copy(update={"hosts": hosts})
    hosts_that_fit(fixed, hosts, [Room(room.total, room.total) for room in nodes()])


def check_device(resources: Resources) -> None:
    """Refuses CUDA without a share of a GPU: Ray hides no GPU from such hosts, and all of them would take the first.

    Raises:
        ResourceError: The scenario asks for that.
    """
    if resources.uses_cuda and not resources.gpus_per_host:
        raise ResourceError(
            "resources.device=cuda without a share of a GPU would put every host on GPU 0: set "
            "resources.gpus_per_host (1, or a fraction for hosts that share a GPU), or run with backend 'inline'"
        )


def hosts_that_fit(resources: Resources, most: int, rooms: Sequence[Room]) -> int:
    """As `plan_hosts`, given the cluster's nodes."""
    ever, now = (sum(fitting(resources, has) for has in each) for each in zip(*map(_both, rooms), strict=True))
    automatic = resources.hosts == "auto"
    wanted = 1 if resources.hosts == "auto" else resources.hosts
    if wanted <= now:
        return max(1, min(now, most)) if automatic else wanted
    asked = f"{wanted} host{'s' * (wanted != 1)} with {_in_words(_asked(resources))}" + " each" * (wanted != 1)
    cluster = f"the Ray cluster of {len(rooms)} node{'s' * (len(rooms) != 1)}"
    if wanted <= ever:
        advice = f"set resources.hosts={now}, which fits now" if now else "nothing fits now"
        raise BusyError(
            f"{cluster} is busy: {asked} would fit it, but not now, while {_free_in_words(rooms)}: wait until others "
            f"have finished (see `ray status`); {advice}"
        )
    there = "; ".join(
        _in_words({kind: room.total.get(kind, 0) for kind in ("CPU", "GPU")}) or "no CPU" for room in rooms
    )
    advice = f"the largest resources.hosts that fits is {ever}"
    if not ever:
        advice = "not even one fits: ask for less with resources.cpus_per_host or resources.gpus_per_host"
    verb = "do" if wanted != 1 else "does"
    raise ResourceError(f"{asked} {verb} not fit {cluster} ({there}; {_free_in_words(rooms)}): {advice}")


def _both(room: Room) -> tuple[Mapping[str, float], Mapping[str, float]]:
    return room.total, room.free


def _asked(resources: Resources) -> dict[str, float]:
    return {"CPU": resources.cpus_per_host, "GPU": resources.gpus_per_host}


def fitting(resources: Resources, has: Mapping[str, float]) -> int:
    """How many hosts a node can hold. A share of a GPU has to lie on one GPU, whole GPUs have to be whole."""
    on_cpus = _times(has.get("CPU", 0), resources.cpus_per_host)
    share = resources.gpus_per_host
    if not share:
        return on_cpus
    whole, rest = divmod(has.get("GPU", 0) + 1e-9, 1)
    on_gpus = _times(whole, share) if share >= 1 else int(whole) * _times(1, share) + _times(rest, share)
    return min(on_cpus, on_gpus)


def _times(have: float, each: float) -> int:
    """How often `each` goes into `have`; fractions such as 1 / 0.1 are whole."""
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
