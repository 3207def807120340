from __future__ import annotations

import pytest

from rayfl.backends.ray.capacity import Room, check_device, hosts_that_fit
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


LABELLED = [
    Room({"CPU": 4.0, "spot": 2.0}, {"CPU": 4.0, "spot": 2.0}, {"pool": "train", "ray.io/market-type": "spot"}),
    Room({"CPU": 8.0, "memory": 2.0**33}, {"CPU": 8.0, "memory": 2.0**33}, {"pool": "head"}),
    Room({"CPU": 2.0, "accelerator_type:T4": 1.0}, {"CPU": 2.0, "accelerator_type:T4": 1.0}),
]


@pytest.mark.parametrize(
    ("options", "hosts"),
    [
        ({"label_selector": {"pool": "train"}}, 4),
        ({"label_selector": {"pool": "in(train, head)"}}, 12),
        ({"label_selector": {"pool": "!in(train,head)"}}, 2),
        ({"label_selector": {"pool": "!head", "ray.io/market-type": "spot"}}, 4),
        ({"resources": {"spot": 0.4}}, 4),
        ({"resources": {"spot": 1}}, 2),
        ({"memory_gb": 3}, 2),
        ({"accelerator_type": "T4"}, 2),
    ],
)
def test_hosts_fit_only_on_nodes_with_the_labels_and_resources_that_they_ask_for(
    options: dict[str, object], hosts: int
) -> None:
    assert hosts_that_fit(resources(host_options=options), 100, LABELLED) == hosts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"label_selector": {"pool": "gpu"}},
            "no node of the Ray cluster has the labels pool=gpu (they have pool=head, pool=train): change resources.",
        ),
        ({"label_selector": {"zone": "in(a, b)"}}, "has the labels zone=in(a, b) (they have no such keys)"),
        ({"resources": {"fast": 1}}, "has the custom resource 'fast': change resources.host_options.resources"),
        ({"accelerator_type": "H100"}, "has an accelerator of type H100 (they have T4): change"),
        (
            {"resources": {"spot": 3}},
            "1 worker with 1 CPU, 3 spot does not fit on the Ray cluster of 3 nodes (4 CPUs, 2 spot; 8 CPUs; 2 CPUs; ",
        ),
        ({"memory_gb": 16}, "16 GiB of memory does not fit on the Ray cluster of 3 nodes (4 CPUs; 8 CPUs, 8 GiB of"),
    ],
)
def test_what_no_node_has_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ResourceError) as caught:
        hosts_that_fit(resources(host_options=options), 100, LABELLED)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_runtime_environment_that_ray_rejects_is_rejected_before_anything_starts() -> None:
    with pytest.raises(ResourceError, match=r"^resources.host_options.runtime_env: .*env_vars"):
        check_device(resources(host_options={"runtime_env": {"env_vars": {"A": 1}}}))
