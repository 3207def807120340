"""Where hosts go, inside a program's own placement group too, as in a trial of Ray Tune."""

from __future__ import annotations

from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rayfl.cluster.placement import _bundles, _wait_until_freed, reserved
from rayfl.config.execution import Resources
from rayfl.errors import ResourceError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def places(resources: Resources, num_clients: int) -> tuple[str, list[int]] | str:
    """The group of the hosts and the bundle of each, or the error."""
    try:
        with reserved(resources, num_clients) as strategies:
            return strategies[0].placement_group.id.hex(), [s.placement_group_bundle_index for s in strategies]
    except ResourceError as error:
        return str(error)


def in_trial(bundles: list[dict[str, float]], resources: Resources, num_clients: int = 100) -> tuple[str, Any]:
    """As a program sees it that takes the first bundle of a group and captures what it starts."""
    group = placement_group(bundles)
    ray.get(group.ready())
    try:
        trial = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
        task = ray.remote(places).options(num_cpus=1, scheduling_strategy=trial)
        return group.id.hex(), ray.get(task.remote(resources, num_clients))
    finally:
        remove_placement_group(group)
        _wait_until_freed(group)


def test_a_trial_puts_its_hosts_into_its_own_bundles() -> None:
    group, found = in_trial([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}], Resources())
    assert found == (group, [1, 2])


def test_a_bundle_may_hold_several_hosts_and_auto_starts_no_more_than_clients() -> None:
    group, found = in_trial([{"CPU": 1}, {"CPU": 2}], Resources(cpus_per_host=0.5), num_clients=3)
    assert found == (group, [1, 1, 1])


def test_a_trial_without_room_is_told_how_to_reserve_it() -> None:
    _, found = in_trial([{"CPU": 3}], Resources(cpus_per_host=1.5, hosts=2))
    assert "1.5 CPU" in found
    assert (
        "reserve them with tune.with_resources(trainable, tune.PlacementGroupFactory([{'CPU': 1}, {'CPU': 1.5}])"
        in found
    )
    assert "or run with backend='inline'" in found


def test_resources_of_the_trial_itself_are_not_free_although_rays_figures_lag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = placement_group([{"CPU": 3}])
    share, cpus = f"bundle_group_{group.id.hex()}", f"CPU_group_0_{group.id.hex()}"
    later = iter([{}, {share: 1000, cpus: 3}, {share: 999.999, cpus: 2}])
    with monkeypatch.context() as patch:
        patch.setattr(ray, "available_resources", lambda: next(later))
        patch.setattr(ray, "cluster_resources", lambda: {share: 1000, cpus: 3})
        (bundle,) = _bundles(group)
    remove_placement_group(group)
    _wait_until_freed(group)
    assert (bundle.total, bundle.free) == ({"CPU": 3}, {"CPU": 2})


def test_outside_of_a_trial_hosts_get_their_own_group() -> None:
    found = places(Resources(hosts=2), 100)
    assert found[1] == [0, 1]


def test_cuda_without_a_share_is_rejected_before_anything_is_reserved() -> None:
    assert "every worker on GPU 0" in places(Resources(device="cuda"), 100)
