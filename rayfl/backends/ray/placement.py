"""Places for hosts on reserved CPUs and GPUs.

Hosts are spread over the nodes, or over those of the trial that a run is part of. Runs with `secure` noise restart
none: repeated updates would draw new noise, but the account counts one.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util import get_current_placement_group, placement_group_table
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rayfl.backends.ray.capacity import BusyError, Room, bundle, check_device, fitting, memory_of, plan_hosts
from rayfl.backends.ray.private import draining_nodes
from rayfl.config.execution import HostRange, Resources
from rayfl.config.scenario import Scenario
from rayfl.errors import ResourceError


def resources_of(scenario: Scenario) -> Resources:
    """The scenario's resources, without restarts if rounds must not be repeated."""
    resources = scenario.resources
    return resources if scenario.repeatable else resources.model_copy(update={"restarts": 0})


def host_options(resources: Resources) -> dict[str, Any]:
    """Ray's options for what one host reserves, but for labels, which are those of its place."""
    options = resources.host_options
    asked: dict[str, Any] = {"num_cpus": resources.cpus_per_host, "num_gpus": resources.gpus_per_host}
    more = {
        "memory": memory_of(options),
        "resources": options.resources,
        "accelerator_type": options.accelerator_type,
        "runtime_env": options.runtime_env,
    }
    return asked | {name: value for name, value in more.items() if value}


PLACEMENT_TIMEOUT_S = 30.0
WAITING_TICK_S = 1.0
PLACED = ("CREATED", "RESCHEDULING")
"""States of placement groups whose bundles have nodes, but for those that lost theirs."""


class Reservation:
    """Places of a run's hosts, and requests for more places, which Ray's autoscaler sees as long as they wait.

    Args:
        resources: The scenario's resources.
        places: Places in a placement group that somebody else holds.

    Attributes:
        places: The places, in the order in which they were reserved.
    """

    def __init__(self, resources: Resources, places: Sequence[PlacementGroupSchedulingStrategy] = ()) -> None:
        self._resources, self.places = resources, list(places)
        self._groups: list[PlacementGroup] = []
        self._requested: list[PlacementGroupSchedulingStrategy] = []

    @property
    def wanted(self) -> int:
        """The number of hosts that have a place or wait for one."""
        return len(self.places) + len(self._requested)

    def take(self, hosts: int) -> None:
        """Reserves places at once, spread over the nodes.

        Raises:
            BusyError: Ray did not provide them in time.
        """
        group = self._group(hosts)
        self._groups.append(group)
        try:
            ray.get(group.ready(), timeout=PLACEMENT_TIMEOUT_S)
        except GetTimeoutError:
            self._release([self._groups.pop()])
            raise BusyError(
                f"the cluster did not provide {hosts} times {bundle(self._resources)} within {PLACEMENT_TIMEOUT_S:g} "
                "s: another program may have taken them in the meantime; see `ray status`"
            ) from None
        self.places += [_place(group, index) for index in range(hosts)]

    def request(self, hosts: int) -> None:
        """Requests places, or withdraws requests, so that this many hosts have a place or wait for one."""
        while self.wanted < hosts:
            group = self._group(1)
            self._groups.append(group)
            self._requested.append(_place(group, 0))
        if surplus := min(self.wanted - hosts, len(self._requested)):
            self.give_back([self._requested.pop() for _ in range(surplus)])

    def arrived(self) -> list[PlacementGroupSchedulingStrategy]:
        """The requested places that Ray has reserved since the last call."""
        if not self._requested:
            return []
        leaving = draining_nodes() | {""}
        there = [node not in leaving for node in nodes_of(self._requested)]
        arrived = [place for place, is_there in zip(self._requested, there, strict=True) if is_there]
        self._requested = [place for place, is_there in zip(self._requested, there, strict=True) if not is_there]
        self.places += arrived
        return arrived

    def lose(self, places: Sequence[PlacementGroupSchedulingStrategy]) -> None:
        """Requests places again whose hosts have ended, or whose node is lost: Ray then looks for another node."""
        self.places = [place for place in self.places if place not in places]
        self._requested += places

    def give_back(self, places: Sequence[PlacementGroupSchedulingStrategy]) -> None:
        """Gives back places, except those in a group that holds others too, which close together."""
        self.places = [place for place in self.places if place not in places]
        held = {place.placement_group for place in (*self.places, *self._requested)}
        ended = [group for group in self._groups if group not in held]
        self._groups = [group for group in self._groups if group in held]
        self._release(ended)

    def close(self) -> None:
        """Gives back all places, and withdraws the requests."""
        self.places, self._requested = [], []
        self.give_back([])

    def _group(self, hosts: int) -> PlacementGroup:
        asked, selector = bundle(self._resources), self._resources.host_options.label_selector
        group: PlacementGroup = placement_group(
            [asked] * hosts,
            strategy="SPREAD",
            bundle_label_selector=[selector] * hosts if selector else None,
            name=f"{_names_begin_with()}{uuid.uuid4().hex}",
        )
        return group

    def _release(self, groups: Sequence[PlacementGroup]) -> None:
        for group in groups:
            remove_placement_group(group)
        for group in groups:
            _wait_until_freed(group)


@contextmanager
def reserved(resources: Resources, most: int, waiting: Callable[[str], None] | None = None) -> Iterator[Reservation]:
    """Reserves resources for the hosts for the duration of the block.

    A program inside a placement group that captures its tasks and actors, such as a trial of Ray Tune, uses the group's
    bundles if the hosts fit into them. Otherwise a range of hosts requests the largest number, and waits for the
    smallest.

    Args:
        resources: The scenario's resources.
        most: The largest number of hosts that can have work.
        waiting: Called with the reason about every second while the cluster is busy; it may raise. Without it, a busy
            cluster is an error, except that a range of hosts waits.

    Yields:
        The places of the hosts.

    Raises:
        ResourceError: The hosts do not fit on the cluster, or Ray did not free the reserved resources in time.
    """
    check_device(resources)
    own = _places_in_own_group(resources, most)
    if own:
        yield Reservation(resources, own)
        return
    reservation = Reservation(resources)
    try:
        _fill(reservation, resources, most, waiting)
        yield reservation
    finally:
        reservation.close()


def _names_begin_with() -> str:
    """The beginning of the names of all groups that this program, or this actor, has requested."""
    return f"rayfl-{ray.get_runtime_context().get_actor_id() or 'driver'}-"


def release_groups_of_before() -> None:
    """Gives back what this actor had reserved before Ray restarted it, which Ray keeps for it."""
    begin = _names_begin_with()
    for group in placement_group_table().values():
        if group["name"].startswith(begin) and group["state"] != "REMOVED":
            remove_placement_group(get_placement_group(group["name"]))


def _fill(reservation: Reservation, resources: Resources, most: int, waiting: Callable[[str], None] | None) -> None:
    elastic, why = isinstance(resources.hosts, HostRange), ""
    while len(reservation.places) < resources.fewest_hosts:
        if reservation.arrived():
            continue
        try:
            if not reservation.wanted:
                reservation.take(plan_hosts(resources, most))
                continue
        except BusyError as error:
            if waiting is None and not elastic:
                raise ResourceError(f"{error}{_hint_for_trials(resources)}") from None
            why = str(error)
            if elastic:
                reservation.request(resources.most_hosts(most))
        except ResourceError as error:
            raise ResourceError(f"{error}{_hint_for_trials(resources)}") from None
        if waiting is not None:
            waiting(why)
        time.sleep(WAITING_TICK_S)  # Ray has no event for freed resources
    if elastic:
        reservation.request(resources.most_hosts(most))


def _places_in_own_group(resources: Resources, most: int) -> list[PlacementGroupSchedulingStrategy]:
    """Free places in the bundles of the program's placement group; none without one, or if it is too small."""
    group = get_current_placement_group()
    if resources.host_options.label_selector:
        return []  # a bundle does not tell the labels of its node
    if group is None or not ray.get_runtime_context().should_capture_child_tasks_in_placement_group:
        return []
    places = [
        _place(group, index)
        for index, bundle in enumerate(_bundles(group))
        for _ in range(fitting(resources, bundle.free))
    ]
    wanted = max(resources.fewest_hosts, min(len(places), resources.most_hosts(most)))
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
    return (
        "\nthis program runs inside a placement group, like a trial of Ray Tune, whose bundles have no room for the "
        "workers: reserve them with tune.with_resources(trainable, "
        f"tune.PlacementGroupFactory([{{'CPU': 1}}, {bundle(resources)}])), one bundle for the trial itself and one "
        "for each worker, or run with backend='inline'"
    )


def _place(group: PlacementGroup, index: int) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)


def nodes_of(places: Sequence[PlacementGroupSchedulingStrategy]) -> list[str]:
    """The node of each place, by its id; empty for those that wait for a node. Those that lose theirs may move."""
    living, groups = {node["NodeID"] for node in ray.nodes() if node["Alive"]}, placement_group_table()
    nodes: list[str] = []
    for place in places:
        group = groups.get(place.placement_group.id.hex(), {})
        placed = group.get("bundles_to_node_id", {}) if group.get("state") in PLACED else {}
        nodes.append(placed.get(place.placement_group_bundle_index, ""))
    return [node if node in living else "" for node in nodes]


def _wait_until_freed(group: PlacementGroup) -> None:
    """Waits until Ray has released a group's resources, so that a run that follows at once finds them free.

    Ray has no event for that, so this polls its figures.
    """
    deadline = time.monotonic() + PLACEMENT_TIMEOUT_S
    while time.monotonic() < deadline and any(group.id.hex() in kind for kind in ray.available_resources()):
        time.sleep(0.1)  # polled, see above
