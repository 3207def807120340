"""Nodes that die and join in the middle of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2
from ray.util import placement_group_table

from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.engine.events import Event, HostsChanged, Recovering, RoundDone, RoundSettled
from rayfl.engine.state.state_store import FolderStore
from rayfl.errors import ResourceError
from rayfl.models.tensors import split
from tests.backends.ray.addresses import connected_cluster, loopback
from tests.engine.scenes import prepared, run_on_hosts
from tests.service.test_submission import until

pytestmark = pytest.mark.ray

HEAD, LOST = loopback(2), loopback(3)
COMMON: dict[str, Any] = {"num_gpus": 0, "object_store_memory": 100 * 2**20, "include_dashboard": False}


SCAFFOLD: dict[str, Any] = {
    "data": {"name": "tests.algorithms.scene:people"},
    "model": "tests.algorithms.scene:TanhNet",
    "phases": [
        {
            "name": "p",
            "rounds": 300,
            "cohort": 5,
            "algorithm": "scaffold",
            "local": {"epochs": 1, "batch_size": 16},
        }
    ],
    "evaluation": {"every": 100},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The driver's node, with 2 CPUs; Ray notices a dead node after about 3 s instead of 20."""
    with connected_cluster(1000, num_cpus=2, node_ip_address=HEAD, **COMMON) as made:
        yield made


def actors_of(session: Any) -> list[Any]:
    """The actors of a session's hosts."""
    return [host.actor._actor_id for host in session._attempt.actors.hosts]


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
    monkeypatch.setattr("rayfl.backends.ray.growth.LOOKS_EVERY_S", 0.5)
    scene = SCAFFOLD | {"checkpoint": {"rounds": 5}, "resources": {"watchdog_s": 5}}
    changes: list[type] = []
    node: Any = None
    before: list[Any] = []
    with ray_session(prepared(**scene), None, RayLog(tmp_path / "ray.log")) as session:
        assert len(session.hosts) == 2
        session.checkpoint_to(FolderStore(tmp_path / "states"))
        for event in session.events():
            if isinstance(event, HostsChanged | Recovering):
                changes.append(type(event))
            if isinstance(event, RoundDone) and event.round == 20:
                before = actors_of(session)
                node = cluster.add_node(num_cpus=1, node_ip_address=LOST, **COMMON)
            if isinstance(event, HostsChanged) and event.hosts == 3:
                assert len(session.hosts) == 3
                assert session.hosts[2]["node"] == LOST
                assert actors_of(session)[:2] == before, "nobody was restarted"
                cluster.remove_node(node, allow_graceful=False)
        model = split(session.committed()[1])[0]
        assert len(session.hosts) == 2
        assert actors_of(session) == before, "nor when the third was lost"
    assert changes == [HostsChanged, Recovering, HostsChanged]
    expected, _ = run_on_hosts(prepared(**scene), 1)
    assert np.array_equal(model, expected)


@pytest.mark.slow
def test_hosts_leave_a_node_that_is_about_to_go_with_their_clients_states_and_no_round_is_repeated(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.backends.ray.growth.LOOKS_EVERY_S", 0.5)
    node = cluster.add_node(num_cpus=1, node_ip_address=LOST, **COMMON)
    rounds: list[int] = []
    changes: list[Event] = []
    scene = SCAFFOLD | {"resources": {"hosts": {"min": 2, "max": 3}}}
    with ray_session(prepared(**scene), None, RayLog(tmp_path / "ray.log")) as session:
        (leaves,) = (number for number, host in enumerate(session.hosts) if host["node"] == LOST)
        stay = [actor for number, actor in enumerate(actors_of(session)) if number != leaves]
        session.checkpoint_to(FolderStore(tmp_path / "states"))
        for event in session.events():
            if isinstance(event, RoundDone):
                rounds.append(event.round)
                if event.round == 20:
                    drain(node)
            if isinstance(event, HostsChanged | Recovering):
                changes.append(event)
                cluster.remove_node(node, allow_graceful=False)
                assert actors_of(session) == stay, "nobody else was restarted"
                assert [host["node"] for host in session.hosts] == [HEAD, HEAD]
        model = split(session.committed()[1])[0]
    (change,) = changes
    assert isinstance(change, HostsChanged)
    assert (change.before, change.hosts) == (3, 2)
    assert rounds == list(range(1, 301))
    expected, _ = run_on_hosts(prepared(**scene), 1)
    assert np.array_equal(model, expected)


def drain(node: Any) -> None:
    """Announces that a node is about to go, as the notice of a spot node does."""
    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")  # type: ignore[attr-defined]
    client = GcsClient(address=ray.get_runtime_context().gcs_address)
    in_an_hour_ms = int(time.time() * 1000) + 3_600_000
    accepted, why = client.drain_node(node.node_id, reason, "spot", in_an_hour_ms)
    assert accepted, why


@pytest.mark.slow
def test_a_run_without_client_states_goes_on_without_a_lost_node_after_its_last_committed_round(
    cluster: Cluster, tmp_path: Path
) -> None:
    node = cluster.add_node(num_cpus=1, node_ip_address=LOST, **COMMON)
    phase = SCAFFOLD["phases"][0] | {"algorithm": "fedavg", "rounds": 100}
    scene = SCAFFOLD | {"phases": [phase], "resources": {"hosts": {"min": 2, "max": 3}}, "checkpoint": {"minutes": 0}}
    rounds: list[int] = []
    recoveries: list[Recovering] = []
    with ray_session(prepared(**scene), None, RayLog(tmp_path / "ray.log")) as session:
        (lost,) = (number for number, host in enumerate(session.hosts) if host["node"] == LOST)
        stay = [actor for number, actor in enumerate(actors_of(session)) if number != lost]
        session.checkpoint_to(FolderStore(tmp_path / "states"))
        for event in session.events():
            if isinstance(event, RoundDone):
                rounds.append(event.round)
                if event.round == 20:
                    cluster.remove_node(node, allow_graceful=False)
            if isinstance(event, Recovering):
                recoveries.append(event)
        model = split(session.committed()[1])[0]
        assert actors_of(session) == stay, "nobody else was restarted"
    (recovering,) = recoveries
    assert recovering.reason == "a node was lost with its workers, and no other node has room for them"
    assert recovering.round >= 20
    assert rounds == list(range(1, 101)), "although the run takes no checkpoint by itself"
    expected, _ = run_on_hosts(prepared(**scene), 1)
    assert np.array_equal(model, expected)


@pytest.mark.slow
def test_a_range_of_hosts_waits_for_the_smallest_number_and_takes_more_as_nodes_join(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rayfl.backends.ray.capacity.SETTLE_S", 0.0)
    monkeypatch.setattr("rayfl.backends.ray.growth.LOOKS_EVERY_S", 0.0)
    phase = {"name": "p", "rounds": 8, "cohort": 5, "local": {"epochs": 1, "batch_size": 16}}
    scene: dict[str, Any] = {
        "phases": [phase],
        "evaluation": {"every": 4},
        "resources": {"hosts": {"min": 3, "max": 5}},
    }
    scene |= {"data": {"name": "tests.algorithms.scene:people"}, "model": "tests.algorithms.scene:TanhNet"}
    added: list[Any] = []
    told: list[str] = []
    requested: list[str] = []

    def waiting(why: str) -> None:
        told.append(why)
        requested.append(";".join(sorted(group["state"] for group in placement_group_table().values())))
        if not added:
            added.append(cluster.add_node(num_cpus=1, node_ip_address=LOST, **COMMON))

    def have_started(session: Any) -> bool:
        session._attempt.growth.look()
        return len(session._attempt.growth._handed) == 2

    settling = replace(prepared(**scene), settles=True)  # rounds wait for this program
    with ray_session(settling, None, RayLog(tmp_path / "ray.log"), waiting) as session:
        assert told[0].startswith("the Ray cluster of 1 node has no room yet for 3 workers with 1 CPU each")
        states = requested[0].split(";")
        assert states.count("PENDING") + states.count("CREATED") >= 5
        assert len(session.hosts) == 3
        grown: list[Any] = []
        for event in session.events():
            if isinstance(event, RoundSettled) and event.round == 3:
                added.append(cluster.add_node(num_cpus=2, node_ip_address=loopback(4), **COMMON))
                until(lambda: have_started(session))
            if isinstance(event, HostsChanged | Recovering):
                grown.append(event)
        model = split(session.committed()[1])[0]
        assert len(session.hosts) == 5
    assert (grown[0].before, grown[-1].hosts) == (3, 5)
    assert all(group["state"] == "REMOVED" for group in placement_group_table().values())
    for node in added:
        cluster.remove_node(node, allow_graceful=False)
    expected, _ = run_on_hosts(prepared(**scene), 1)
    assert np.array_equal(model, expected)


@pytest.mark.slow
def test_hosts_go_to_nodes_with_the_labels_and_resources_that_they_ask_for(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.add_node(
        num_cpus=2, node_ip_address=LOST, labels={"pool": "train"}, resources={"scratch": 1}, **COMMON
    )
    phase = {"name": "p", "rounds": 1, "cohort": 2, "local": {"epochs": 1, "batch_size": 16}}
    options: dict[str, Any] = {"label_selector": {"pool": "train"}, "resources": {"scratch": 0.5}, "memory_gb": 0.1}
    options |= {"runtime_env": {"env_vars": {"RAYFL_TEST_MARK": "here"}}}
    job = prepared(phases=[phase], resources={"hosts": 2, "host_options": options})
    with ray_session(job, None, RayLog(tmp_path / "ray.log")) as session:
        assert [host["node"] for host in session.hosts] == [LOST, LOST]
    for changes, named in (
        ({"label_selector": {"pool": "gpu"}}, "has the labels pool=gpu"),
        ({"resources": {"fast": 1}}, "has the custom resource 'fast'"),
    ):
        other = prepared(phases=[phase], resources={"hosts": 1, "host_options": changes})
        with (
            pytest.raises(ResourceError, match=f"^no node of the Ray cluster {named}"),
            ray_session(other, None, RayLog(tmp_path / "ray.log")),
        ):
            pass
    cluster.remove_node(node, allow_graceful=False)
