"""How many hosts fit on a cluster, and places for them on reserved CPUs and GPUs.

Checked before any actor starts, and again once a cluster has grown. Hosts are spread over the nodes, or over those of
the trial that a run is part of. Runs with `secure` noise restart none: repeated updates would draw new noise, but the
account counts one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import ray
from ray.exceptions import GetTimeoutError
from ray.util import get_current_placement_group, placement_group_table
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rayfl.backends.ray.private import available_resources_per_node
from rayfl.config.execution import Resources
from rayfl.config.scenario import Scenario
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


def resources_of(scenario: Scenario) -> Resources:
    """The scenario's resources, without restarts if rounds must not be repeated."""
    resources = scenario.resources
    return resources if scenario.repeatable else resources.model_copy(update={"restarts": 0})


PLACEMENT_TIMEOUT_S = 30.0
WAITING_TICK_S = 1.0


@contextmanager
def reserved(
    resources: Resources, most: int, waiting: Callable[[str], None] | None = None
) -> Iterator[Sequence[PlacementGroupSchedulingStrategy]]:
    """Reserves resources for the hosts for the duration of the block.

    A program inside a placement group that captures its tasks and actors, such as a trial of Ray Tune, uses the group's
    bundles if the hosts fit into them.

    Args:
        resources: The scenario's resources.
        most: With `auto`, the largest number of hosts.
        waiting: Called with the reason about every second while the cluster is busy; it may raise. Without it, a busy
            cluster is an error.

    Yields:
        The place of each host.

    Raises:
        ResourceError: The hosts do not fit on the cluster, or Ray did not free the reserved resources in time.
    """
    check_device(resources)
    own = _places_in_own_group(resources, most)
    if own:
        yield own
        return
    with ExitStack() as stack:
        while True:
            try:
                hosts = plan_hosts(resources, most)
                group = stack.enter_context(_group(resources, hosts))
                break
            except BusyError as error:
                if waiting is None:
                    raise ResourceError(f"{error}{_hint_for_trials(resources)}") from None
                waiting(str(error))
                time.sleep(WAITING_TICK_S)  # Ray has no event for freed resources
            except ResourceError as error:
                raise ResourceError(f"{error}{_hint_for_trials(resources)}") from None
        yield [_place(group, index) for index in range(hosts)]


def _places_in_own_group(resources: Resources, most: int) -> list[PlacementGroupSchedulingStrategy]:
    """Free places in the bundles of the program's placement group; none without one, or if it is too small."""
    group = get_current_placement_group()
    if group is None or not ray.get_runtime_context().should_capture_child_tasks_in_placement_group:
        return []
    places = [
        _place(group, index)
        for index, bundle in enumerate(_bundles(group))
        for _ in range(fitting(resources, bundle.free))
    ]
    wanted = min(len(places), most) if resources.hosts == "auto" else resources.hosts
    return places[:wanted] if wanted <= len(places) else []


def _bundles(group: PlacementGroup) -> list[Room]:
    """The resources of a group's bundles. Ray counts a bundle's free resources under names that contain its index."""
    share = f"bundle_group_{group.id.hex()}"
    deadline, free = time.monotonic() + PLACEMENT_TIMEOUT_S, ray.available_resources()
    # a program in a group holds a little of this resource; until Ray's figures show that, they omit the group or count
    # this program's own resources as free
    while not 0 < free.get(share, 0) < ray.cluster_resources().get(share, 0) and time.monotonic() < deadline:
        time.sleep(0.1)  # polled, since Ray has no event for updated figures
        free = ray.available_resources()
    return [
        Room(bundle, {kind: free.get(f"{kind}_group_{index}_{group.id.hex()}", 0) for kind in bundle})
        for index, bundle in enumerate(group.bundle_specs)
    ]


def _hint_for_trials(resources: Resources) -> str:
    if get_current_placement_group() is None:
        return ""
    host = _bundle(resources)
    return (
        "\nthis program runs inside a placement group, like a trial of Ray Tune, whose bundles have no room for the "
        "workers: reserve them with tune.with_resources(trainable, "
        f"tune.PlacementGroupFactory([{{'CPU': 1}}, {host}])), one bundle for the trial itself and one for each "
        "worker, or run with backend='inline'"
    )


def _place(group: PlacementGroup, index: int) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)


def nodes_of(places: Sequence[PlacementGroupSchedulingStrategy]) -> list[str]:
    """The node of each place, by its id; hosts that lose their node may move to another."""
    tables = {place.placement_group.id: placement_group_table(place.placement_group) for place in places}
    return [
        tables[place.placement_group.id].get("bundles_to_node_id", {}).get(place.placement_group_bundle_index, "")
        for place in places
    ]


def _bundle(resources: Resources) -> dict[str, float]:
    bundle = {"CPU": resources.cpus_per_host, "GPU": resources.gpus_per_host}
    return {kind: amount for kind, amount in bundle.items() if amount}


@contextmanager
def _group(resources: Resources, hosts: int) -> Iterator[PlacementGroup]:
    """A new placement group with one bundle per host, spread over the nodes."""
    bundle = _bundle(resources)
    group = placement_group([bundle] * hosts, strategy="SPREAD")
    try:
        try:
            ray.get(group.ready(), timeout=PLACEMENT_TIMEOUT_S)
        except GetTimeoutError:
            raise BusyError(
                f"the cluster did not provide {hosts} times {bundle} within {PLACEMENT_TIMEOUT_S:g} s: another program "
                "may have taken them in the meantime; see `ray status`"
            ) from None
        yield group
    finally:
        remove_placement_group(group)
        _wait_until_freed(group)


def _wait_until_freed(group: PlacementGroup) -> None:
    """Waits until Ray has released a group's resources, so that a run that follows at once finds them free.

    Ray has no event for that, so this polls its figures.
    """
    deadline = time.monotonic() + PLACEMENT_TIMEOUT_S
    while time.monotonic() < deadline and any(group.id.hex() in kind for kind in ray.available_resources()):
        time.sleep(0.1)  # polled, see above
