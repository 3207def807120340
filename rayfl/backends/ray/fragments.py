"""Fragments of prepared data as Ray tasks, each written by one node to a folder that all share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import ray

from rayfl.backends.ray.connection import attached
from rayfl.backends.ray.tasks import RayTask, run_tasks
from rayfl.backends.ray.user_code import UserCode
from rayfl.config.execution import Resources
from rayfl.config.scenario import Scenario
from rayfl.data.prepared.manifest import Fragment
from rayfl.data.prepared.unwritten import Unwritten, Written

SPARE = 1
"""Tasks beyond one per CPU of the cluster: the next has its rows there when a CPU becomes free."""


class OnCluster:
    """Writes fragments on a cluster; see `rayfl.data.prepared.unwritten.WriteFragments`.

    Rows that the source keeps on disk are read by the task that writes them; rows in memory are sent to it.

    Args:
        scenario: Names the source, whose code every task needs.
        code: Digests of that code (`rayfl.runs.environment.code_digests`).
        data_dir: The folder with real data, which every node must be able to read.
        address: The cluster's address (see `attached`).
    """

    def __init__(self, scenario: Scenario, code: Mapping[str, str], data_dir: Path, address: str) -> None:
        self._code, self._resources = UserCode.of(scenario, code), Resources(restarts=scenario.resources.restarts)
        self._data_dir, self._address = data_dir, address

    def __call__(self, folder: Path, fragments: Iterable[Unwritten]) -> Written:
        """Writes fragments; Ray's messages are in `ray.log` of the folder until the preparation ends.

        Raises:
            ResourceError: No cluster answers, a node cannot access a folder, or a task was lost too often.
            DataError: A node reads other data than this process.
        """
        folder = folder.absolute()
        with attached(self._address, workers_print=False):
            at_once = SPARE + max(1, int(ray.cluster_resources().get("CPU", 1)))
            tasks = (self._task(folder, fragment) for fragment in fragments)
            results = run_tasks(written, tasks, self._address, folder, self._data_dir, at_once, "FOLDER", gently=False)
            with closing(results):
                for result in results:
                    if result is not None and isinstance(result.value, Exception):
                        raise result.value
                    if result is not None:
                        yield result.value

    def _task(self, folder: Path, fragment: Unwritten) -> RayTask:
        # in a list, since Ray resolves references among arguments before the task can make the source importable
        return RayTask((self._code, folder, [ray.put(fragment.sendable())]), self._resources)


def written(code: UserCode, folder: Path, reference: Sequence[Any]) -> Fragment:
    """Writes one fragment, on the node that runs the task."""
    code.make_importable()
    fragment: Unwritten = ray.get(reference[0])
    fragment.reopen()
    return fragment.write(folder)
