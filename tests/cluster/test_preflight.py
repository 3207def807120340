from __future__ import annotations

import pytest

from rayfl.cluster.preflight import hosts_that_fit
from rayfl.config.execution import Resources
from rayfl.errors import ResourceError

NODES = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0}]
FREE = {"CPU": 6.0, "GPU": 1.0}


def resources(**values: object) -> Resources:
    return Resources.model_validate(values)


def test_auto_is_one_host_for_every_cpu() -> None:
    assert hosts_that_fit(resources(), 100, NODES, FREE) == 6


def test_auto_starts_no_more_hosts_than_there_are_clients() -> None:
    assert hosts_that_fit(resources(), 5, NODES, FREE) == 5


def test_a_host_does_not_straddle_nodes() -> None:
    assert hosts_that_fit(resources(cpus_per_host=3), 100, NODES, FREE) == 1


def test_tenths_of_a_gpu_fit_ten_times() -> None:
    assert hosts_that_fit(resources(gpus_per_host=0.1, cpus_per_host=0.1), 100, NODES, FREE) == 10


def test_what_others_use_is_not_counted() -> None:
    assert hosts_that_fit(resources(), 100, NODES, {"CPU": 2.0, "GPU": 1.0}) == 2


def test_too_many_hosts_are_refused_with_what_there_is_and_the_largest_that_fits() -> None:
    with pytest.raises(ResourceError) as caught:
        hosts_that_fit(resources(hosts=9), 100, NODES, FREE)
    assert str(caught.value) == (
        "9 hosts with 1 CPU each do not fit the Ray cluster of 2 nodes (4 CPUs, 1 GPUs; 2 CPUs, 0 GPUs; "
        "free: 6 CPUs, 1 GPUs): the largest resources.hosts that fits is 6"
    )


def test_where_not_even_one_fits_it_says_what_to_ask_less_of() -> None:
    with pytest.raises(ResourceError, match=r"not even one fits: ask for less with resources\.cpus_per_host"):
        hosts_that_fit(resources(gpus_per_host=2), 100, NODES, FREE)
