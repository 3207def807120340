"""Independent calls as Ray tasks: as many at once as the cluster has room for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayfl.cluster.connection import attached
from rayfl.cluster.preflight import plan_hosts
from rayfl.cluster.workers import as_rayfl_error
from rayfl.config.execution import Resources
from rayfl.engine.memory import keep_freed_memory
from rayfl.errors import ResourceError

TICK_S = 1.0


class Task(NamedTuple):
    """Arguments of a call, and what it takes of the cluster: what one host of the resources has."""

    arguments: tuple[Any, ...]
    resources: Resources


class Returned(NamedTuple):
    """What came of a task, counted from 0: a value, or the error with which Ray lost it."""

    task: int
    value: Any


def run_tasks(
    function: Callable[..., Any], tasks: Sequence[Task], address: str | None, writes: Path, reads: Path
) -> Generator[Returned | None, None, None]:
    """Calls `function` for every task, the first ones first; whatever is under way is cancelled when it is closed.

    writes, reads: folders of the calls, which every node must see; `reads` only where it is there at all.

    Yields:
        Every result once, as soon as it is there, and None about every second without one.

    Raises:
        ResourceError: no cluster answers at `address` (see `attached`), a task cannot ever fit, or a node does not
            see a folder.
    """
    with attached(address, workers_print=False):
        for resources in {task.resources.model_copy(update={"hosts": "auto"}) for task in tasks}:
            plan_hosts(resources, 1)
        if sum(node["Alive"] for node in ray.nodes()) > 1:
            _check_seen_by_all(writes, reads)
        remote = ray.remote(_called)
        under_way = {
            remote.options(**_options(task.resources)).remote(function, *task.arguments): number
            for number, task in enumerate(tasks)
        }
        try:
            while under_way:
                done, _ = ray.wait(list(under_way), num_returns=1, timeout=TICK_S)
                if not done:
                    yield None
                for ref in done:
                    yield Returned(under_way.pop(ref), _value(ref))
        finally:
            for ref in under_way:
                ray.cancel(ref, force=True)


def nodes_that_miss(path: Path, access: int = os.R_OK) -> list[str]:
    """Addresses of the cluster's nodes on which there is no such path, or none with this access (`os.access`)."""
    accessible = ray.remote(_accessible)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    checks = [
        accessible.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(path, access)
        for node in nodes
    ]
    return [node["NodeManagerAddress"] for node, seen in zip(nodes, ray.get(checks), strict=True) if not seen]


def _check_seen_by_all(writes: Path, reads: Path) -> None:
    with tempfile.TemporaryDirectory(dir=writes, prefix=".seen-by-all-") as probe:
        missing = nodes_that_miss(Path(probe), os.W_OK)
    if missing:
        raise ResourceError(
            f"{', '.join(missing)} of the cluster's nodes cannot write to this machine's '{writes}', and runs write "
            "there wherever they are: name a folder on shared storage with --out"
        )
    missing = nodes_that_miss(reads) if reads.exists() else []
    if missing:
        raise ResourceError(
            f"{', '.join(missing)} of the cluster's nodes cannot read the data in '{reads}': copy it there, or name a "
            "folder on shared storage with --data-dir"
        )


def _accessible(path: Path, access: int) -> bool:
    return os.access(path, access)


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    keep_freed_memory()
    return function(*arguments)


def _options(resources: Resources) -> dict[str, Any]:
    return {
        "num_cpus": resources.cpus_per_host,
        "num_gpus": resources.gpus_per_host,
        "max_retries": resources.restarts,
    }


def _value(ref: Any) -> Any:
    try:
        return ray.get(ref)
    except RayError as error:
        return as_rayfl_error(error, [])
