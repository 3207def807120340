"""How many hosts fit on a cluster; checked before any actor starts, and again once a cluster has grown."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import ray
from ray.runtime_env import RuntimeEnv
from ray.util import get_current_placement_group

from rayfl.backends.ray.private import available_resources_per_node
from rayfl.config.execution import HostOptions, HostRange, Resources
from rayfl.errors import ResourceError

ACCELERATOR = "accelerator_type:"
"""Beginning of the name of the resource by which Ray finds nodes with a kind of accelerator."""

SETTLE_S = 3.0
"""How long Ray's figures of free resources may lag behind."""


class BusyError(ResourceError):
    """The hosts would fit if no one else used the cluster."""


@dataclass(frozen=True)
class Room:
    """The CPUs and GPUs of a node, or of a bundle of a placement group.

    Attributes:
        total: All of them, by kind; custom resources and memory (in bytes) too.
        free: Those not in use, by kind.
        labels: The labels of the node.
    """

    total: Mapping[str, float]
    free: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)


def nodes() -> list[Room]:
    """The living nodes of the cluster this program is attached to."""
    free = available_resources_per_node()
    return [
        Room(node["Resources"], free.get(node["NodeID"], {}), node.get("Labels", {}))
        for node in ray.nodes()
        if node["Alive"]
    ]


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
        ResourceError: They do not fit, and the number does not follow the cluster's size; gives the cluster's resources
            and the request.
    """
    check_device(resources)
    if isinstance(resources.hosts, HostRange):
        return  # the cluster may grow
    fixed = resources.model_copy(update={"hosts": hosts})
    hosts_that_fit(fixed, hosts, [Room(room.total, room.total, room.labels) for room in nodes()])


def check_device(resources: Resources) -> None:
    """Checks what does not depend on the cluster.

    CUDA without a share of a GPU is rejected: Ray would hide no GPU from such hosts, and all would use the first one.

    Raises:
        ResourceError: The scenario uses CUDA without a share of a GPU, or Ray rejects the runtime environment.
    """
    if resources.uses_cuda and not resources.gpus_per_host:
        raise ResourceError(
            "resources.device=cuda without a share of a GPU would put every worker on GPU 0: set "
            "resources.gpus_per_host (1, or a fraction for workers that share a GPU), or run with backend 'inline'"
        )
    try:
        RuntimeEnv(**resources.host_options.runtime_env)
    except (TypeError, ValueError) as error:
        raise ResourceError(f"resources.host_options.runtime_env: {' '.join(str(error).split())}") from None


def hosts_that_fit(resources: Resources, most: int, rooms: Sequence[Room]) -> int:
    """As `plan_hosts`, for given nodes."""
    allowed = [room for room in rooms if has_labels(room.labels, resources.host_options.label_selector)]
    ever = sum(fitting(resources, room.total) for room in allowed)
    now = sum(fitting(resources, room.free) for room in allowed)
    wanted = resources.fewest_hosts
    if wanted <= now:
        return max(wanted, min(now, resources.most_hosts(most)))
    asked = f"{wanted} worker{'s' * (wanted != 1)} with {_in_words(bundle(resources))}" + " each" * (wanted != 1)
    cluster = f"the Ray cluster of {len(rooms)} node{'s' * (len(rooms) != 1)}"
    if isinstance(resources.hosts, HostRange):
        raise BusyError(
            f"{cluster} has no room yet for {asked}, while {_free_in_words(rooms)}: they are requested, and an "
            "autoscaler adds nodes for them; without one, add nodes, or lower resources.hosts.min"
        )
    if wanted <= ever:
        advice = f"set resources.hosts={now}, which fits now" if now else "nothing fits now"
        raise BusyError(
            f"{cluster} is busy: {asked} would fit, but not now, while {_free_in_words(rooms)}: wait until others have "
            f"finished (see `ray status`); {advice}"
        )
    _check_some_node_has(resources.host_options, rooms)
    there = "; ".join(
        _in_words({kind: room.total.get(kind, 0) for kind in bundle(resources) | {"CPU": 0, "GPU": 0}}) or "no CPU"
        for room in rooms
    )
    advice = f"the largest resources.hosts that fits is {ever}"
    if not ever:
        advice = "not even one fits: lower resources.cpus_per_host or resources.gpus_per_host"
        if resources.host_options != HostOptions():
            advice += ", or ask for less in resources.host_options"
    verb = "do" if wanted != 1 else "does"
    raise ResourceError(f"{asked} {verb} not fit on {cluster} ({there}; {_free_in_words(rooms)}): {advice}")


def _check_some_node_has(options: HostOptions, rooms: Sequence[Room]) -> None:
    """Checks that nodes have the labels, the custom resources and the accelerator that hosts need, in any amount."""
    key = "no node of the Ray cluster has"
    selector, labels = options.label_selector, {pair for room in rooms for pair in room.labels.items()}
    if selector and not any(has_labels(room.labels, selector) for room in rooms):
        asked = ", ".join(f"{name}={condition}" for name, condition in selector.items())
        there = ", ".join(f"{name}={value}" for name, value in sorted(labels) if name in selector)
        raise ResourceError(
            f"{key} the labels {asked} (they have {there or 'no such keys'}): change "
            "resources.host_options.label_selector, or start nodes with `ray start --labels`"
        )
    kinds = {kind for room in rooms for kind in room.total}
    for name in options.resources.keys() - kinds:
        raise ResourceError(
            f"{key} the custom resource '{name}': change resources.host_options.resources, or start nodes with "
            f"`ray start --resources '{{\"{name}\": 1}}'`"
        )
    if options.accelerator_type and f"{ACCELERATOR}{options.accelerator_type}" not in kinds:
        there = ", ".join(sorted(kind.removeprefix(ACCELERATOR) for kind in kinds if kind.startswith(ACCELERATOR)))
        raise ResourceError(
            f"{key} an accelerator of type {options.accelerator_type} (they have {there or 'none'}): change "
            "resources.host_options.accelerator_type"
        )


def has_labels(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether a node with these labels meets every condition of a selector (`HostOptions.label_selector`)."""
    return all(_meets(labels.get(key), condition) for key, condition in selector.items())


def _meets(label: str | None, condition: str) -> bool:
    allowed = condition.removeprefix("!")
    values = allowed[3:-1].replace(" ", "").split(",") if allowed.startswith("in(") else [allowed]
    return (label in values) != condition.startswith("!")


def bundle(resources: Resources) -> dict[str, float]:
    """What Ray reserves for one host, by kind; memory in bytes."""
    options = resources.host_options
    asked = {"CPU": resources.cpus_per_host, "GPU": resources.gpus_per_host, "memory": memory_of(options)}
    if options.accelerator_type:
        asked[f"{ACCELERATOR}{options.accelerator_type}"] = 0.001
    return {kind: amount for kind, amount in asked.items() if amount} | options.resources


def memory_of(options: HostOptions) -> int:
    """The main memory that Ray reserves for a host, in bytes."""
    return int((options.memory_gb or 0) * 2**30)


def fitting(resources: Resources, has: Mapping[str, float]) -> int:
    """How many hosts fit on a node. A fraction of a GPU must lie on a single GPU; whole GPUs must be entirely free."""
    on_cpus = min(_times(has.get(kind, 0), amount) for kind, amount in bundle(resources).items() if kind != "GPU")
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
    return ", ".join(_amount_in_words(kind, amount) for kind, amount in amounts.items() if amount)


def _amount_in_words(kind: str, amount: float) -> str:
    if kind.startswith(ACCELERATOR):
        return f"an accelerator of type {kind.removeprefix(ACCELERATOR)}"
    if kind == "memory":
        return f"{amount / 2**30:.3g} GiB of memory"
    return f"{amount:g} {kind}{'s' * (amount > 1 and kind in ('CPU', 'GPU'))}"


def _free_in_words(rooms: Sequence[Room]) -> str:
    parts = []
    for kind in ("CPU", "GPU"):
        total, free = sum(room.total.get(kind, 0) for room in rooms), sum(room.free.get(kind, 0) for room in rooms)
        if total:
            parts.append(f"{free:g} of {total:g} {kind}{'s' * (total > 1)}")
    return f"{' and '.join(parts)} are free"


ASKS_EVERY_S = 60.0
"""How often a run with `hosts = "auto"` looks for room for more."""


def hosts_with_room(resources: Resources, most: int, hosts: int) -> int:
    """How many hosts a run could have now.

    Args:
        resources: The scenario's resources; a number of hosts there is an upper limit.
        most: The most hosts that would have any work.
        hosts: How many the run has, or has requested.
    """
    wanted, selector = resources.most_hosts(most), resources.host_options.label_selector
    if hosts >= wanted or get_current_placement_group() is not None:  # a trial's resources do not grow
        return hosts
    return min(wanted, hosts + sum(fitting(resources, r.free) for r in nodes() if has_labels(r.labels, selector)))
