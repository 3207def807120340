"""Where hosts go, inside a program's own placement group too, as in a trial of Ray Tune."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rayfl.backends.ray.capacity import Room
from rayfl.backends.ray.placement import _bundles, _places_in_own_group, _wait_until_freed, reserved
from rayfl.config.execution import Resources
from rayfl.errors import ResourceError


class Trial:
    """A program in the first bundle of a group, without Ray: it captures what it starts, and has taken one CPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *bundles: float, captures: bool = True) -> None:
        self.group: Any = SimpleNamespace(
            id=SimpleNamespace(hex=lambda: "abc"), bundle_specs=[{"CPU": cpus} for cpus in bundles]
        )
        total = {"bundle_group_abc": 1000.0} | {f"CPU_group_{i}_abc": cpus for i, cpus in enumerate(bundles)}
        free = total | {"bundle_group_abc": 999.999, "CPU_group_0_abc": bundles[0] - 1}
        self.figures = iter([{}, total, free])  # Ray's lag behind
        monkeypatch.setattr("rayfl.backends.ray.placement.get_current_placement_group", lambda: self.group)
        context = SimpleNamespace(should_capture_child_tasks_in_placement_group=captures)
        monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
        monkeypatch.setattr(ray, "available_resources", lambda: next(self.figures))
        monkeypatch.setattr(ray, "cluster_resources", lambda: total)

    def places(self, resources: Resources, most: int = 100) -> list[int]:
        found = _places_in_own_group(resources, most)
        assert all(place.placement_group is self.group for place in found)
        return [place.placement_group_bundle_index for place in found]


def test_resources_of_the_trial_itself_are_not_free_although_rays_figures_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    (bundle,) = _bundles(Trial(monkeypatch, 3).group)
    assert (bundle.total, bundle.free) == ({"CPU": 3}, {"CPU": 2})


def test_a_bundle_may_hold_several_hosts_and_auto_starts_no_more_than_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Trial(monkeypatch, 1, 1, 1).places(Resources()) == [1, 2]
    assert Trial(monkeypatch, 1, 2).places(Resources(cpus_per_host=0.5)) == [1, 1, 1, 1]
    assert Trial(monkeypatch, 1, 2).places(Resources(cpus_per_host=0.5), most=3) == [1, 1, 1]
    assert Trial(monkeypatch, 3, 1).places(Resources(hosts=2)) == [0, 0]


def test_a_trial_without_room_or_that_captures_nothing_has_no_places(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Trial(monkeypatch, 1, 1).places(Resources(hosts=2)) == []
    assert Trial(monkeypatch, 1, 2, captures=False).places(Resources()) == []


def test_a_trial_without_room_is_told_how_to_reserve_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Trial(monkeypatch, 3)
    monkeypatch.setattr("rayfl.backends.ray.capacity.SETTLE_S", -1.0)
    monkeypatch.setattr("rayfl.backends.ray.capacity.nodes", lambda: [Room({"CPU": 3.0}, {})])
    with pytest.raises(ResourceError) as caught, reserved(Resources(cpus_per_host=1.5, hosts=2), 100):
        pass
    assert "2 workers with 1.5 CPUs each" in str(caught.value)
    assert (
        "reserve them with tune.with_resources(trainable, tune.PlacementGroupFactory([{'CPU': 1}, {'CPU': 1.5}])"
        in str(caught.value)
    )
    assert "or run with backend='inline'" in str(caught.value)


def test_cuda_without_a_share_is_rejected_before_anything_is_reserved() -> None:
    with pytest.raises(ResourceError, match="every worker on GPU 0"), reserved(Resources(device="cuda"), 100):
        pass


def places(resources: Resources) -> tuple[str, list[int]]:
    """The group of the hosts and the bundle of each."""
    with reserved(resources, 100) as reservation:
        group = reservation.places[0].placement_group
        return group.id.hex(), [place.placement_group_bundle_index for place in reservation.places]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_trial_puts_its_hosts_into_its_own_bundles_and_others_get_a_group_of_their_own() -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}])
    ray.get(group.ready())
    trial = PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=True)
    task = ray.remote(places).options(num_cpus=1, scheduling_strategy=trial)
    assert ray.get(task.remote(Resources())) == (group.id.hex(), [1, 2])
    remove_placement_group(group)
    _wait_until_freed(group)
    assert places(Resources(hosts=2))[1] == [0, 1]
