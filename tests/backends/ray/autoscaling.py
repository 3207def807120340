"""A cluster whose autoscaler adds nodes on this machine.

As `ray.cluster_utils.AutoscalingCluster`, which however ends all clusters of the machine before it starts its own, and
takes a fixed port.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._common.network_utils import find_free_port
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
from ray.autoscaler.tags import NODE_KIND_WORKER, STATUS_UP_TO_DATE, TAG_RAY_NODE_KIND, TAG_RAY_NODE_STATUS

import rayfl
from tests.backends.ray.addresses import loopback

OBJECTS = 100 * 2**20
AS_RAYS_OWN = {"use_node_id_as_ip": True, "disable_node_updaters": True, "disable_launch_config_check": True}
FIRST = 10
"""Addresses of nodes count from here."""


class Loopback(FakeMultiNodeProvider):
    """Starts nodes on loopback, as many as the file `allowed` says; called by the autoscaler."""

    def _create_node_with_resources_and_labels(
        self, node_config: Any, tags: Any, count: int, resources: Any, labels: Any
    ) -> None:
        with self.lock:
            number, allowed = len(self._nodes), int(Path(self.provider_config["allowed"]).read_text())
            if number > allowed:
                return
            name, address = f"{number:056x}", self.provider_config["gcs_address"]
            parameters = RayParams(
                node_ip_address=loopback(FIRST + number), min_worker_port=0, max_worker_port=0,
                dashboard_agent_listen_port=0, num_cpus=resources["CPU"], num_gpus=0, object_store_memory=OBJECTS,
                redis_address=address, gcs_address=address,
                env_vars={"RAY_OVERRIDE_NODE_ID_FOR_TESTING": name, "RAY_CLOUD_INSTANCE_ID": name},
            )  # fmt: skip
            node = Node(parameters, head=False, shutdown_at_exit=False, spawn_reaper=False)
            own = {TAG_RAY_NODE_KIND: NODE_KIND_WORKER, TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE}
            nodes: dict[str, Any] = self._nodes
            nodes[name] = {"tags": own | tags, "node": node}


@contextmanager
def autoscaling_cluster(folder: Path, allowed: int) -> Iterator[Path]:
    """A cluster to which this process is connected: a head without CPUs, and nodes with one each as runs need them.

    Args:
        folder: For files.
        allowed: How many nodes there may be.

    Yields:
        The file with that number, which may be changed.
    """
    limit, config = folder / "allowed", folder / "autoscaler.json"
    limit.write_text(str(allowed))
    address, port = loopback(FIRST), find_free_port()
    provider = {"type": "external", "module": f"{__name__}.Loopback", "allowed": str(limit)}
    settings: dict[str, Any] = {
        "cluster_name": "rayfl", "max_workers": 8, "head_node_type": "ray.head.default", "idle_timeout_minutes": 10,
        "provider": provider | {"gcs_address": f"{address}:{port}"} | AS_RAYS_OWN,
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "cpu": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 8},
        },
        "auth": {}, "file_mounts": {}, "cluster_synced_files": [], "file_mounts_sync_continuously": False,
        "initialization_commands": [], "setup_commands": [], "head_setup_commands": [], "worker_setup_commands": [],
        "head_start_ray_commands": [], "worker_start_ray_commands": [], "upscaling_speed": 1.0,
    }  # fmt: skip
    config.write_text(json.dumps(settings))
    root = str(Path(rayfl.__file__).parent.parent)
    more = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    more |= {"RAY_AUTH_MODE": "disabled"}
    head = subprocess.Popen(
        [
            sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}", "--num-cpus=0",
            "--num-gpus=0", f"--node-ip-address={address}", f"--object-store-memory={OBJECTS}",
            "--include-dashboard=false", f"--autoscaling-config={config}",
        ],
        env=os.environ | more | {"PYTHONPATH": root}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not _listens(address, port):
            assert head.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        ray.init(address=f"{address}:{port}", _node_ip_address=address, log_to_driver=False)
        yield limit
    finally:
        ray.shutdown()
        head.terminate()
        for process in psutil.process_iter(["cmdline"]):  # also those that the autoscaler has started
            if any(f"{address}:{port}" in argument for argument in process.info["cmdline"] or ()):
                process.kill()
        head.wait()


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True
