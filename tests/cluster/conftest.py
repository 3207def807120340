from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """Ray on this machine with 3 CPUs, and one GPU that only Ray believes in.

    All tests that do not start their own cluster share it.
    """
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=3,
        num_gpus=1,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        _node_ip_address="127.0.0.2",  # loopback; 127.0.0.1 itself would be replaced by the machine's address
        log_to_driver=False,
    )
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def never_drawn(no_picture: None) -> None:
    """No run that this process watches draws its curves."""
