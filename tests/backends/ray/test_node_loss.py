"""Nodes that die and join in the middle of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.engine.events import HostsAdded, Recovering, RoundDone
from rayfl.engine.state.state_store import FolderStore
from rayfl.errors import ResourceError
from rayfl.models.tensors import split
from tests.backends.ray.addresses import connected_cluster, loopback
from tests.engine.scenes import prepared, run_on_hosts

pytestmark = pytest.mark.ray

HEAD, LOST = loopback(2), loopback(3)
COMMON: dict[str, Any] = {"num_gpus": 0, "object_store_memory": 100 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The driver's node, with 2 CPUs; Ray notices a dead node after about 3 s instead of 20."""
    with connected_cluster(1000, num_cpus=2, node_ip_address=HEAD, **COMMON) as made:
        yield made


@pytest.fixture
def two_nodes(cluster: Cluster) -> Iterator[None]:
    """Another node beside the driver's, with 1 CPU, new for every test."""
    node = cluster.add_node(num_cpus=1, node_ip_address=LOST, **COMMON)
    yield
    cluster.remove_node(node, allow_graceful=False)


@pytest.mark.slow
@pytest.mark.usefixtures("two_nodes")
def test_a_relay_survives_the_loss_of_a_node_that_held_only_hosts_with_the_same_bits(tmp_path: Path) -> None:
    mark = tmp_path / "lost"
    phase = {"name": "p", "schedule": "relay", "rounds": 3, "cohort": 1.0, "local": {"batch_size": 16}}
    losing = {"name": "tests.backends.ray.broken:LosesNode", "mark": str(mark), "node": LOST}
    job = prepared(phases=[phase | {"algorithm": losing}], resources={"hosts": 2, "relay": "spread", "restarts": 1})
    with ray_session(job, None, RayLog(tmp_path / "ray.log")) as session:
        assert sorted(host["node"] for host in session.hosts) == [HEAD, LOST]
        for _ in session.events():
            pass
        model = split(session.committed()[1])[0]
    assert mark.exists()
    assert sum(node["Alive"] for node in ray.nodes()) == 1
    expected, _ = run_on_hosts(prepared(phases=[phase]), 1)
    assert np.array_equal(model, expected)


@pytest.mark.slow
@pytest.mark.usefixtures("two_nodes")
def test_without_restarts_the_loss_of_a_node_ends_the_run_and_is_named(tmp_path: Path) -> None:
    phase = {"name": "p", "rounds": 1, "cohort": 1.0, "local": {"batch_size": 16}}
    losing = {"name": "tests.backends.ray.broken:LosesNode", "mark": str(tmp_path / "lost"), "node": LOST}
    job = prepared(phases=[phase | {"algorithm": losing}], resources={"hosts": 2, "restarts": 0})
    with (
        pytest.raises(ResourceError, match=r"worker \d died"),
        ray_session(job, None, RayLog(tmp_path / "ray.log")) as session,
    ):
        for _ in session.events():
            pass


@pytest.mark.slow
def test_a_stateful_run_goes_on_with_more_hosts_when_a_node_joins_and_with_fewer_when_it_dies(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.backends.ray.capacity.ASKS_EVERY_S", 1.0)
    local = {"epochs": 1, "batch_size": 16}
    phase = {"name": "p", "rounds": 300, "cohort": 5, "algorithm": "scaffold", "local": local}
    scene: dict[str, Any] = {"phases": [phase], "evaluation": {"every": 100}, "checkpoint": {"rounds": 5}}
    scene |= {"data": {"name": "tests.algorithms.scene:people"}, "model": "tests.algorithms.scene:TanhNet"}
    scene |= {"resources": {"watchdog_s": 5}}
    changes: list[type] = []
    node: Any = None
    with ray_session(prepared(**scene), None, RayLog(tmp_path / "ray.log")) as session:
        assert len(session.hosts) == 2
        session.checkpoint_to(FolderStore(tmp_path / "states"))
        for event in session.events():
            if isinstance(event, HostsAdded | Recovering):
                changes.append(type(event))
            if isinstance(event, RoundDone) and event.round == 20:
                node = cluster.add_node(num_cpus=1, node_ip_address=LOST, **COMMON)
            if isinstance(event, HostsAdded):
                assert len(session.hosts) == 3
                cluster.remove_node(node, allow_graceful=False)
        model = split(session.committed()[1])[0]
        assert len(session.hosts) == 2
    assert changes[:2] == [HostsAdded, Recovering]
    expected, _ = run_on_hosts(prepared(**scene), 1)
    assert np.array_equal(model, expected)
