"""A cluster of eight small nodes beside the driver's: the bits of one process, and nothing grows that must not.

`RAYFL_NODES=16 python -m pytest -s tests/backends/ray/test_many_nodes.py` does the same with sixteen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

from rayfl.__main__ import main as rayfl_command
from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.private import node_stats
from rayfl.backends.ray.session import ray_session
from rayfl.config.loader import load_scenario
from rayfl.engine.events import RoundDone
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.models.tensors import split
from rayfl.runs.preparation import prepare
from rayfl.runs.resolution import resolve
from rayfl.studies.scale.processes import roles
from tests.backends.ray.addresses import connected_cluster, loopback
from tests.engine.scenes import run_on_hosts

pytestmark = [pytest.mark.ray, pytest.mark.slow]

NODES = int(os.environ.get("RAYFL_NODES", "8"))
SUMS = 8
"""The most that the server receives in a round."""

HEAD = loopback(100)
STORE: dict[str, Any] = {"num_gpus": 0, "object_store_memory": 80 * 2**20, "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The driver's node has no CPU, so that no worker is there."""
    with connected_cluster(10_000, num_cpus=0, node_ip_address=HEAD, **STORE) as made:
        for number in range(NODES):
            made.add_node(num_cpus=1, node_ip_address=loopback(101 + number), **STORE)
        yield made


def scaled(shape: str, *overrides: str) -> RunPlan:
    run, _ = prepare(resolve(load_scenario(shape, overrides=list(overrides))), Path("no-data-here"))
    return run


def bytes_at_the_server() -> int:
    """Bytes of all objects that the store of the server's node has held: made there, or copied from other nodes."""
    (head,) = (node for node in ray.nodes() if node["NodeManagerAddress"] == HEAD and node["Alive"])
    stats = node_stats(head["NodeManagerAddress"], head["NodeManagerPort"], False)
    return int(stats.store_stats.cumulative_created_bytes)


def memory() -> dict[str, float]:
    """The largest process of every role, in MB of memory without a file behind it."""
    largest = dict[str, float]()
    for pid, role in roles().items():
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        size = sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1000
        largest[role] = max(largest.get(role, 0.0), size)
    return largest


def test_many_nodes_give_the_bits_of_one_process_and_the_server_receives_eight_sums_at_most(cluster: Cluster) -> None:
    overrides = "model.params=200000", "phases.scale.cohort=32", "phases.scale.rounds=4"
    run = scaled("scale_model", *overrides, f"resources.hosts={NODES}")
    with ray_session(run, None, RayLog(Path(os.devnull))) as session:
        nodes = {host["node"] for host in session.hosts}
        marks = [bytes_at_the_server() for event in session.events() if isinstance(event, RoundDone)]
        model = split(session.committed()[1])[0]
    assert nodes == {loopback(101 + number) for number in range(NODES)}
    assert np.array_equal(model, run_on_hosts(scaled("scale_model", *overrides), 1)[0])
    a_round = (marks[3] - marks[0]) / 3 / len(model)
    print(f"\n{NODES} nodes: {a_round:.1f} bytes a parameter and round at the server's node")
    assert a_round < 1.1 * (4 + 8 * SUMS)


def test_no_process_grows_with_the_samples(cluster: Cluster, tmp_path: Path) -> None:
    """Of prepared data, of which every worker maps what its clients train on."""
    found = []
    for each in (1, 12):
        folder, source = tmp_path / str(each), "rayfl.studies.scale.load:samples"
        sizes = [f"data.options.{key}={size}" for key, size in (("clients", 80), ("each", each), ("values", 25_000))]
        assert rayfl_command(["data", "prepare", source, str(folder), *sizes]) == 0
        data = f"data={{ name = 'prepared', options = {{ path = '{folder}' }} }}"
        work = (
            "model.values=25000",
            "phases.scale.cohort=80",
            "phases.scale.rounds=3",
            f"phases.scale.local.steps={each}",
        )
        run = scaled("scale_data", data, *work, f"resources.hosts={NODES}")
        largest = dict[str, float]()
        with ray_session(run, None, RayLog(Path(os.devnull))) as session:
            for event in session.events():
                if isinstance(event, RoundDone):
                    now = memory()
                    largest = {role: max(size, largest.get(role, 0.0)) for role, size in now.items()}
        found.append(largest)
    grown = {role: round(found[1][role] - found[0].get(role, 0.0), 1) for role in found[1]}
    print(f"\n{NODES} nodes: 8 and 96 MB of samples, MB more in the largest process of a role: {grown}")
    assert set(grown) >= {"driver", "workers", "server", "scheduler"}
    assert max(grown.values()) < 40, grown
