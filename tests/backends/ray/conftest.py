from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rayfl.backends.ray.kept_cluster import KeptCluster
from rayfl.backends.ray.private import without_api_server
from rayfl.runs.session import Session
from tests.backends.ray.addresses import loopback
from tests.object_store import CREDENTIALS


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """Ray on this machine with 3 CPUs, and one GPU that only Ray believes in.

    All tests that do not start their own cluster share it.
    """
    import ray

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"} | CREDENTIALS  # hosts look for them where they write to a URI
    with without_api_server():
        ray.init(
            address="local",
            num_cpus=3,
            num_gpus=1,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            _node_ip_address=loopback(2),  # 127.0.0.1 itself would be replaced by the machine's address
            log_to_driver=False,
        )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def kept_hosts(ray_cluster: None) -> Iterator[KeptCluster]:
    """The hosts of tests for which `shared_hosts` will do."""
    with KeptCluster() as kept:
        yield kept


@pytest.fixture
def shared_hosts(kept_hosts: KeptCluster, monkeypatch: pytest.MonkeyPatch) -> KeptCluster:
    """Has runs of this process share hosts, as those of a session do, instead of each starting its own."""
    alone = Session._cluster
    monkeypatch.setattr(Session, "_cluster", lambda session: alone(session) and kept_hosts)
    return kept_hosts


@pytest.fixture(autouse=True)
def room_for_hosts(request: pytest.FixtureRequest) -> None:
    """Ends shared hosts before tests that start others."""
    if "ray_cluster" in request.fixturenames and "shared_hosts" not in request.fixturenames:
        request.getfixturevalue("kept_hosts").actors.discard()
