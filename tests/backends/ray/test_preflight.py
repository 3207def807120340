from __future__ import annotations

import pytest

from rayfl.backends.ray.placement import Room, check_device, hosts_that_fit
from rayfl.config.execution import Resources
from rayfl.errors import ResourceError


def resources(**values: object) -> Resources:
    return Resources.model_validate(values)


def idle(cpus: float, gpus: float = 0.0) -> Room:
    return Room({"CPU": cpus, "GPU": gpus}, {"CPU": cpus, "GPU": gpus})


NODES = [idle(4, 1), idle(2)]
BUSY = [Room({"CPU": 4.0, "GPU": 1.0}, {"GPU": 1.0}), Room({"CPU": 2.0}, {"CPU": 2.0})]


def test_auto_is_one_host_for_every_cpu() -> None:
    assert hosts_that_fit(resources(), 100, NODES) == 6


def test_auto_starts_no_more_hosts_than_there_are_clients() -> None:
    assert hosts_that_fit(resources(), 5, NODES) == 5


def test_a_host_does_not_straddle_nodes() -> None:
    assert hosts_that_fit(resources(cpus_per_host=3), 100, NODES) == 1


def test_tenths_of_a_gpu_fit_ten_times() -> None:
    assert hosts_that_fit(resources(gpus_per_host=0.1, cpus_per_host=0.1), 100, NODES) == 10


@pytest.mark.parametrize(
    ("share", "gpus", "hosts"),
    [(0.6, 2, 2), (0.4, 4, 8), (0.3, 2, 6), (1, 2, 2), (2, 3, 1), (0.5, 1.5, 3), (0.6, 1.5, 1), (1, 1.5, 1)],
)
def test_a_share_of_a_gpu_lies_on_one_gpu(share: float, gpus: float, hosts: int) -> None:
    asked = resources(gpus_per_host=share, cpus_per_host=0.1)
    assert hosts_that_fit(asked, 100, [idle(64, gpus)]) == hosts


def test_resources_used_by_others_are_not_counted() -> None:
    assert hosts_that_fit(resources(), 100, BUSY) == 2


def test_free_cpus_of_a_node_do_not_help_hosts_of_another() -> None:
    with pytest.raises(ResourceError, match="is busy"):
        hosts_that_fit(resources(gpus_per_host=1), 100, BUSY)


def test_a_busy_cluster_is_called_busy_with_what_is_free_and_what_fits_now() -> None:
    with pytest.raises(ResourceError) as caught:
        hosts_that_fit(resources(hosts=5), 100, BUSY)
    assert str(caught.value) == (
        "the Ray cluster of 2 nodes is busy: 5 workers with 1 CPU each would fit, but not now, while 2 of 6 CPUs and "
        "1 of 1 GPU are free: wait until others have finished (see `ray status`); set resources.hosts=2, which fits now"
    )


def test_a_cluster_without_any_room_now_is_called_busy_with_automatic_hosts_too() -> None:
    with pytest.raises(ResourceError, match=r"is busy: 1 worker with 1 CPU would fit, .* nothing fits now"):
        hosts_that_fit(resources(), 100, [Room({"CPU": 4.0}, {})])


def test_too_many_hosts_are_rejected_with_what_there_is_and_the_largest_that_fits() -> None:
    with pytest.raises(ResourceError) as caught:
        hosts_that_fit(resources(hosts=9), 100, NODES)
    assert str(caught.value) == (
        "9 workers with 1 CPU each do not fit on the Ray cluster of 2 nodes (4 CPUs, 1 GPU; 2 CPUs; "
        "6 of 6 CPUs and 1 of 1 GPU are free): the largest resources.hosts that fits is 6"
    )


def test_where_not_even_one_fits_it_says_what_to_ask_less_of() -> None:
    with pytest.raises(ResourceError, match=r"not even one fits: lower resources\.cpus_per_host"):
        hosts_that_fit(resources(gpus_per_host=2), 100, NODES)


def test_cuda_without_a_share_of_a_gpu_is_rejected_with_the_remedy() -> None:
    with pytest.raises(ResourceError, match=r"every worker on GPU 0: set resources\.gpus_per_host"):
        check_device(resources(device="cuda"))
    check_device(resources(device="cuda", gpus_per_host=0.5))
    check_device(resources())
