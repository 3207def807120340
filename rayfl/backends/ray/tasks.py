"""Independent calls as Ray tasks, as many at once as the cluster has room for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rayfl.backends.ray.capacity import check_ever_fits
from rayfl.backends.ray.connection import attached
from rayfl.backends.ray.failures import as_rayfl_error, take_ray_text
from rayfl.backends.ray.log import NAME, RayLog, ray_text_in
from rayfl.backends.ray.placement import host_options
from rayfl.config.execution import Resources
from rayfl.engine.memory import keep_freed_memory
from rayfl.errors import ResourceError
from rayfl.wording import one_line

TICK_S = 1.0

ENDS_WITHIN_S = 10.0
"""How long an interrupted task may take to end."""


class RayTask(NamedTuple):
    """One call.

    Attributes:
        arguments: The call's arguments.
        resources: The call reserves the resources of one host.
    """

    arguments: tuple[Any, ...]
    resources: Resources


class Returned(NamedTuple):
    """The result of a task.

    Attributes:
        task: The task's position, from 0.
        value: The call's return value, or the `RayflError` with which it failed on Ray.
    """

    task: int
    value: Any


def run_tasks(
    function: Callable[..., Any],
    tasks: Iterable[RayTask],
    address: str | None,
    writes: Path,
    reads: Path,
    at_once: int | None = None,
    names_writes: str = "--out",
    gently: bool = True,
) -> Generator[Returned | None, None, None]:
    """Calls `function` for every task, in order; closing the generator interrupts running calls.

    Args:
        function: The function to call.
        tasks: The arguments and resources of each call; a task is taken when it is handed to Ray.
        address: The cluster's address (see `attached`).
        writes: A folder to which the calls write; every node must be able to. Ray's own messages go to a file there.
        reads: A folder that the calls read; if it exists, every node must be able to read it.
        at_once: How many calls Ray knows of at a time, whether they run or wait for room; by default all.
        names_writes: The argument by which a user names `writes`, for messages.
        gently: Whether closing the generator interrupts running calls, so that they can end well, before it kills
            their processes. An interrupted process goes on with other tasks, even if it had imported half a library.

    Yields:
        Each result as soon as it is known, and None about every second without one.

    Raises:
        ResourceError: No cluster answers at `address`, a task can never fit on it, or a node cannot access a folder.
    """
    log = RayLog(writes / NAME)
    with attached(address, workers_print=False), ray_text_in(log):
        if sum(node["Alive"] for node in ray.nodes()) > 1:
            _check_seen_by_all(writes, reads, names_writes)
        waiting = enumerate(tasks)
        checked, under_way = list[Resources](), dict[Any, int]()
        try:
            while True:
                taken = list(islice(waiting, None if at_once is None else at_once - len(under_way)))
                for resources in (task.resources for _, task in taken):
                    if resources not in checked:
                        check_ever_fits(resources)
                        checked.append(resources)
                under_way |= {
                    _remote(task.resources).remote(function, *task.arguments): number for number, task in taken
                }
                if not under_way:
                    return
                done, _ = ray.wait(list(under_way), num_returns=1, timeout=TICK_S)
                if not done:
                    yield None
                for ref in done:
                    yield Returned(under_way.pop(ref), _value(ref, log))
        finally:
            _end(list(under_way), gently)


def _end(tasks: Sequence[Any], gently: bool) -> None:
    """Interrupts tasks as Ctrl-C would, so that runs write a checkpoint; kills those still running afterwards.

    A second Ctrl-C kills them at once.
    """
    try:
        for ref in tasks if gently else ():
            ray.cancel(ref)
        if tasks and gently:
            ray.wait(list(tasks), num_returns=len(tasks), timeout=ENDS_WITHIN_S)
    finally:
        for ref in tasks:
            ray.cancel(ref, force=True)


class NodeAnswer(NamedTuple):
    """What a node of the cluster answered.

    Attributes:
        address: The node's address.
        resources: Its resources, by kind.
        value: What the function returned there; None if it failed.
        error: Why it failed, in one line; empty if it did not.
    """

    address: str
    resources: Mapping[str, float]
    value: Any
    error: str = ""


def ask_every_node(function: Callable[..., Any], *arguments: Any, within_s: float | None = None) -> list[NodeAnswer]:
    """Calls a function on every living node of the cluster, beside whatever runs there.

    Args:
        function: The function.
        arguments: Its arguments.
        within_s: How long to wait for all nodes together, in seconds; by default without limit.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    remote = ray.remote(function)
    refs = [
        remote.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(*arguments)
        for node in nodes
    ]
    done, late = ray.wait(refs, num_returns=len(refs), timeout=within_s)
    for ref in late:
        ray.cancel(ref, force=True)
    return [_answer(node, ref, ref in done, within_s) for node, ref in zip(nodes, refs, strict=True)]


def _answer(node: Mapping[str, Any], ref: Any, is_done: bool, within_s: float | None) -> NodeAnswer:
    address, resources = node["NodeManagerAddress"], node["Resources"]
    if not is_done:
        return NodeAnswer(address, resources, None, f"does not answer within {within_s:g} s")
    try:
        return NodeAnswer(address, resources, ray.get(ref))
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) and error.cause is not None else error
        return NodeAnswer(address, resources, None, f"{type(cause).__name__}: {one_line(cause)}")


def nodes_that_miss(path: Path, access: int = os.R_OK) -> list[str]:
    """Addresses of the cluster's nodes on which a path is missing or lacks this access (`os.access`)."""
    return [answer.address for answer in ask_every_node(_accessible, path, access) if not answer.value]


def _check_seen_by_all(writes: Path, reads: Path, names_writes: str) -> None:
    with tempfile.TemporaryDirectory(dir=writes, prefix=".seen-by-all-") as probe:
        missing = nodes_that_miss(Path(probe), os.W_OK)
    if missing:
        raise ResourceError(
            f"{_nodes(missing)} cannot write to this machine's '{writes}', where all write their results: name a "
            f"folder on shared storage with {names_writes}"
        )
    missing = nodes_that_miss(reads) if reads.exists() else []
    if missing:
        raise ResourceError(
            f"{_nodes(missing)} cannot read the data in '{reads}': copy it to all nodes, or name a folder on shared "
            "storage with --data-dir"
        )


def _nodes(addresses: Sequence[str]) -> str:
    return f"node{'s' * (len(addresses) > 1)} {', '.join(addresses)}"


def _accessible(path: Path, access: int) -> bool:
    return os.access(path, access)


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    keep_freed_memory()
    return function(*arguments)


def _remote(resources: Resources) -> Any:
    """The remote function for tasks with these resources.

    Resources are set here rather than with `.options`: only for a function created with a GPU does Ray end the worker
    with the task, which releases the GPU's memory.
    """
    labels = {"label_selector": selector} if (selector := resources.host_options.label_selector) else {}
    remote: Any = ray.remote  # its overloads do not take options by unpacking
    return remote(**host_options(resources), **labels, max_retries=resources.restarts)(_called)


def _value(ref: Any, log: RayLog) -> Any:
    try:
        return ray.get(ref)
    except RayError as error:
        converted = as_rayfl_error(error, {})
        log.write(take_ray_text(converted))
        return converted
