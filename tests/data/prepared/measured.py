"""One step of the proof that prepared data may be larger than memory, in a process of its own.

`python -m tests.data.prepared.measured STEP FOLDER MIB` prints JSON. Steps: written, prepared, on_ray, in_memory;
loaded_on_ray, loaded_here; on_nodes.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from rich.console import Console

import rayfl
from rayfl.__main__ import main as rayfl_command
from rayfl.cli.prepared_data import _scenario
from rayfl.data.prepared import writer as writer
from rayfl.data.sources import own_files as own_files

WIDTH, CLIENTS, CLASSES, AT_ONCE = 1000, 200, 10, 4096
FOLDER, MIB = Path(sys.argv[2]), int(sys.argv[3])
ROWS = MIB * 2**20 // 4 // WIDTH
OPTIONS = {"path": str(FOLDER / "source.arrow"), "inputs": "x", "label": "y", "owner": "site", "split": "split"}


def written() -> None:
    """An Arrow file whose rows are not ordered by client."""
    rng, y = np.random.default_rng(0), np.arange(AT_ONCE) % CLASSES
    kinds = [("x", pa.list_(pa.float32(), WIDTH)), ("y", pa.int64()), ("site", pa.int64()), ("split", pa.string())]
    with pa.ipc.new_file(OPTIONS["path"], pa.schema(kinds)) as writer:
        for start in range(0, ROWS, AT_ONCE):
            number = min(AT_ONCE, ROWS - start)
            x = rng.random((number, WIDTH), np.float32)
            split = np.where(np.arange(start, start + number) % 100 == 0, "test", "train")
            owner = rng.integers(0, CLIENTS, number)
            columns = [pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), WIDTH), y[:number], owner, split]
            writer.write_batch(pa.record_batch(columns, names=[name for name, _ in kinds]))


def prepared() -> dict[str, Any]:
    """Prepares it, and returns by how much the process's own memory grew."""
    arguments = ["data", "prepare", "arrow_file", str(FOLDER / "prepared")]
    arguments += [f"data.options.{key}={value}" for key, value in OPTIONS.items()]
    _scenario("arrow_file", arguments[4:])  # loads what both a small and a large source need
    before, peaks = own_mib(psutil.Process()), watched(lambda: rayfl_command(arguments))
    return {"peak": max(peaks.values()) - before}


def on_ray() -> dict[str, Any]:
    """Trains from the prepared folder on two hosts, and returns the largest memory of each kind of process."""
    return _on_ray({"name": "prepared", "options": {"path": str(FOLDER / "prepared")}})


def _on_ray(data: dict[str, Any]) -> dict[str, Any]:
    import ray  # the other steps do without it

    ray.init(address="local", num_cpus=2, object_store_memory=100 * 2**20, include_dashboard=False, log_to_driver=False)
    digests = []
    peaks = watched(lambda: digests.append(trained(data, "ray")))
    return {"model": digests[0], "driver": peaks["driver"], "host": peaks["host"]}


def on_nodes() -> dict[str, Any]:
    """Trains from prepared data on three nodes with disks of their own, and returns the copies on each."""
    import ray
    from ray.cluster_utils import Cluster

    writer.FRAGMENT_BYTES = 2**20
    rayfl_command(
        ["data", "prepare", "tests.data.prepared.by_client:loaded", str(FOLDER / "it"), f"data.options.mib={MIB}"]
    )
    nodes: list[dict[str, Any]] = [
        {"num_cpus": 1, "object_store_memory": 80 * 2**20, "node_ip_address": f"127.0.5.{number}"}
        | {"env_vars": {"RAYFL_NODE_CACHE": str(FOLDER / f"node {number}")}}
        for number in (1, 2, 3)
    ]
    cluster = Cluster(initialize_head=True, head_node_args=nodes[0] | {"include_dashboard": False})
    try:
        for node in nodes[1:]:
            cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False)
        model = trained({"name": "prepared", "options": {"path": str(FOLDER / "it")}}, "ray", hosts=3)
        ray.shutdown()
    finally:
        cluster.shutdown()
    fragments = len([*(FOLDER / "it").glob("train-*.arrow")])
    copies = [sorted(copy.name for copy in FOLDER.glob(f"node {number}/*.copy")) for number in (1, 2, 3)]
    return {"model": model, "fragments": fragments, "copies": copies}


def loaded_on_ray() -> dict[str, Any]:
    """Trains on two hosts from clients that these load, and returns the largest memory of each kind of process."""
    return _on_ray({"name": "tests.data.prepared.by_client:loaded", "options": {"mib": MIB}})


def loaded_here() -> dict[str, Any]:
    """Trains from the same clients as arrays in the memory of one process."""
    return {"model": trained({"name": "tests.data.prepared.by_client:in_memory", "options": {"mib": MIB}}, "inline")}


def in_memory() -> dict[str, Any]:
    """Trains from arrays in the memory of one process."""
    return {"model": trained({"name": "tests.data.prepared.measured:arrays"}, "inline")}


def arrays() -> dict[str, Any]:
    """The samples of the source, in its order."""
    x, y, owner = np.empty((ROWS, WIDTH), np.float32), np.empty(ROWS, np.int64), np.empty(ROWS, np.int64)
    start, is_test = 0, np.arange(ROWS) % 100 == 0
    with pa.ipc.open_file(OPTIONS["path"]) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            rows = slice(start, start + len(batch))
            x[rows] = batch["x"].flatten().to_numpy().reshape(-1, WIDTH)
            y[rows], owner[rows], start = batch["y"].to_numpy(), batch["site"].to_numpy(), rows.stop
    train, test = (np.flatnonzero(chosen) for chosen in (~is_test, is_test))
    return {"train": (x[train], y[train], owner[train]), "test": (x[test], y[test], owner[test])}


def trained(data: dict[str, Any], backend: Any, hosts: int = 2) -> str:
    """SHA-256 of the model after a round in which every client trains."""
    phase = {"name": "p", "rounds": 1, "cohort": CLIENTS, "local": {"lr": 0.1, "batch_size": 64, "epochs": 1}}
    tables = {"data": data, "model": {"name": "mlp", "hidden": [8]}, "phases": [phase], "resources": {"hosts": hosts}}
    result = rayfl.run(tables, backend=backend, out=FOLDER / backend, console=Console(quiet=True))
    return hashlib.sha256((result.directory / "model.safetensors").read_bytes()).hexdigest()


def own_mib(process: psutil.Process) -> float:
    """The proportional set size of memory without a file behind it."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:"))) / 1024


def watched(work: Callable[[], Any]) -> Counter[str]:
    """The largest memory of this process and of a host while some work is done, in MiB."""
    peaks, done, driver = Counter[str](), threading.Event(), psutil.Process()

    def watch() -> None:
        while not done.wait(0.05):
            for process in [driver, *driver.children(recursive=True)]:
                try:
                    role = "driver" if process == driver else "host" if "HostActor" in process.cmdline()[0] else ""
                    if role:
                        peaks[role] = max(peaks[role], round(own_mib(process)))
                except (psutil.Error, OSError, IndexError):  # it has just ended
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return peaks


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
