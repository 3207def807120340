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
from rayfl.cluster.failures import as_rayfl_error, take_ray_text
from rayfl.cluster.preflight import check_ever_fits
from rayfl.cluster.ray_log import NAME, RayLog, ray_text_in
from rayfl.config.execution import Resources
from rayfl.engine.memory import keep_freed_memory
from rayfl.errors import ResourceError

TICK_S = 1.0

ENDS_WITHIN_S = 10.0
"""So long may a task take to end once it is interrupted."""


class Task(NamedTuple):
    """One call.

    Attributes:
        arguments: Of the call.
        resources: It takes what one host of these takes.
    """

    arguments: tuple[Any, ...]
    resources: Resources


class Returned(NamedTuple):
    """What came of a task.

    Attributes:
        task: Its position, from 0.
        value: What the call returned, or the `RayflError` with which it was lost.
    """

    task: int
    value: Any


def run_tasks(
    function: Callable[..., Any], tasks: Sequence[Task], address: str | None, writes: Path, reads: Path
) -> Generator[Returned | None, None, None]:
    """Calls `function` for every task, the first ones first; closing the generator interrupts what is under way.

    Args:
        function: What to call.
        tasks: The arguments of each call, and what it needs.
        address: Of the cluster (see `attached`).
        writes: A folder to which the calls write, so every node must see it. What Ray has to say goes to a file there.
        reads: A folder that the calls read if it exists, and which every node must see then.

    Yields:
        Every result once, as soon as it is known, and None about every second without one.

    Raises:
        ResourceError: No cluster answers at `address`, a task can never fit it, or a node does not see a folder.
    """
    log = RayLog(writes / NAME)
    with attached(address, workers_print=False), ray_text_in(log):
        for resources in {task.resources for task in tasks}:
            check_ever_fits(resources)
        if sum(node["Alive"] for node in ray.nodes()) > 1:
            _check_seen_by_all(writes, reads)
        under_way = {
            _remote(task.resources).remote(function, *task.arguments): number for number, task in enumerate(tasks)
        }
        try:
            while under_way:
                done, _ = ray.wait(list(under_way), num_returns=1, timeout=TICK_S)
                if not done:
                    yield None
                for ref in done:
                    yield Returned(under_way.pop(ref), _value(ref, log))
        finally:
            _end(list(under_way))


def _end(tasks: Sequence[Any]) -> None:
    """Interrupts tasks, as Ctrl-C would, so that runs write a checkpoint; ends those that take long, or at once."""
    try:
        for ref in tasks:
            ray.cancel(ref)
        if tasks:
            ray.wait(list(tasks), num_returns=len(tasks), timeout=ENDS_WITHIN_S)
    finally:
        for ref in tasks:
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


def _remote(resources: Resources) -> Any:
    """The remote function for tasks of one kind.

    Resources are given here and not by `.options`: only of a function that is made with a GPU does Ray know that its
    worker must end with the task, and release the GPU's memory.
    """
    return ray.remote(
        num_cpus=resources.cpus_per_host, num_gpus=resources.gpus_per_host, max_retries=resources.restarts
    )(_called)


def _value(ref: Any, log: RayLog) -> Any:
    try:
        return ray.get(ref)
    except RayError as error:
        told = as_rayfl_error(error, {})
        log.write(take_ray_text(told))
        return told
