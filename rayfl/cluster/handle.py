"""`rayfl.Handle` and `rayfl.attach`: follow a submitted run from any program that is connected to its cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError
from ray.util import list_named_actors

from rayfl.cluster.connection import connected
from rayfl.cluster.run_actor import LOG, NAMESPACE, lines_of
from rayfl.errors import RayflError, ResourceError, ScenarioError
from rayfl.reading import reading
from rayfl.registry import nearest
from rayfl.report.status import LOST, MODEL, UNDER_WAY, read_status

if TYPE_CHECKING:
    import pyarrow as pa

    from rayfl.result import Result

ASKS_EVERY_S = 5.0


class Handle:
    """A submitted run, which continues without its handle; made by `rayfl.submit` and `rayfl.attach`.

    Attributes:
        name: The name for `rayfl.attach`.
        folder: The folder with its records, on the machine that submitted it.

    Example::

        handle = rayfl.attach("cyclic", address="auto")
        handle.status()["committed_rounds"]
        handle.stop()                          # the round under way becomes the last one
        model = handle.result().state_dict     # waits until the run has ended
    """

    def __init__(self, name: str, actor: Any, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._actor = actor

    def status(self) -> dict[str, Any]:
        """The content of status.json.

        It says whether the run waits for resources, runs, has ended or is lost, and why; how many of the scenario's
        `rounds` are over (`committed_rounds`), and the `phase` of the last of them. Until the run has loaded its data,
        it is only `{"status": "preparing"}`.

        Raises:
            ResourceError: The run has ended, and its records are not on this machine.
        """
        try:
            told: dict[str, Any] | None = ray.get(self._actor.status.remote())
        except RayActorError:
            told = self._recorded()
        return told or {"status": "preparing"}

    def over(self, timeout_s: float = 0.0) -> bool:
        """Whether the run has ended, successfully or not; waits at most `timeout_s` seconds for it to end."""
        try:
            return bool(ray.get(self._actor.ended.remote(timeout_s)))
        except ActorUnavailableError:  # for a moment only
            return False
        except RayActorError:
            return True

    def printed(self, since: int = 0) -> tuple[str, int]:
        """What the run has printed so far, in whole lines.

        Args:
            since: The position to start from, as an earlier call returned it.

        Returns:
            The lines, and the position where they end. Empty for a run that has ended elsewhere, without records on
            this machine.
        """
        try:
            told: tuple[str, int] = ray.get(self._actor.printed.remote(since))
        except RayActorError:
            return lines_of(self.folder / LOG, since)
        return told

    def metrics(self) -> pa.Table:
        """The metrics so far, a row for each evaluated round.

        Raises:
            ResourceError: As `status`.
        """
        try:
            return ray.get(self._actor.metrics.remote())
        except RayActorError:
            from rayfl.report.recorded_metrics import read_metrics

            self._recorded()
            return read_metrics(self.folder)

    def stop(self) -> None:
        """Makes the round under way the last one; the run keeps its last committed model. Returns at once.

        A run that has no round yet, because it waits for resources or for the scenario that it starts from, ends as
        interrupted.
        """
        try:
            ray.get(self._actor.stop.remote())
        except RayActorError:
            return

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the run has ended, successfully or not.

        Args:
            timeout_s: Seconds to wait at most; by default as long as it takes.

        Returns:
            Whether the run has ended.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = ASKS_EVERY_S if deadline is None else min(ASKS_EVERY_S, deadline - time.monotonic())
            try:
                ray.get(self._actor.ended.remote(max(left, 0.0)))
            except ActorUnavailableError:  # for a moment only
                continue
            except RayActorError:
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def result(self) -> Result:
        """Waits for the run to end and returns the same result as `rayfl.run`.

        Raises:
            RayflError: The run failed or was interrupted; run.log in its folder has the whole error.
            ResourceError: Its process was killed, or its records are not on this machine.
        """
        from safetensors.torch import load_file

        from rayfl.config.loading import load_scenario
        from rayfl.report.recorded_metrics import read_metrics
        from rayfl.result import Result

        self.wait()
        status = self._recorded()
        if status["status"] in (*UNDER_WAY, LOST):
            raise ResourceError(
                f"run '{self.name}': its process was killed, or its node lost; what it recorded is in {self.folder}"
            )
        if status["status"] != "finished":
            raise RayflError(f"run '{self.name}' {status['status']}: {status['reason']}; see {self.folder / LOG}")
        scenario = load_scenario(self.folder / "scenario.toml")
        with reading(self.folder / MODEL, "as safetensors", ResourceError):
            model = load_file(self.folder / MODEL)
        return Result(scenario, read_metrics(self.folder), model, self.folder)

    def _recorded(self) -> dict[str, Any]:
        status = read_status(self.folder)
        if status is None:
            raise ResourceError(
                f"run '{self.name}' has ended, and its records are not on this machine: look for {self.folder} where "
                "it was submitted"
            )
        return status


def attach(name: str, address: str | None = None) -> Handle:
    """Finds a submitted run that is under way.

    Args:
        name: The name of the run's handle.
        address: The cluster's address, as for `rayfl.run`, if this program is not connected to it.

    Returns:
        A handle to follow, stop and wait for the run.

    Raises:
        ScenarioError: No run of this name is under way.
        ResourceError: No cluster answers.

    Example::

        rayfl.attach("cyclic", address="auto").status()
    """
    connected(address)
    try:
        actor: Any = ray.get_actor(name, namespace=NAMESPACE)
        folder: Path = ray.get(actor.folder.remote())
    except (ValueError, RayActorError):
        raise ScenarioError(
            f"no run called '{name}' is under way on this cluster (one that has ended left its records in its folder); "
            f"{nearest(name, under_way) if (under_way := names_under_way()) else 'none is'}"
        ) from None
    return Handle(name, actor, folder)


def names_under_way(address: str | None = None) -> list[str]:
    """The names of all submitted runs that are under way, in alphabetical order.

    Args:
        address: As for `attach`.

    Raises:
        ResourceError: No cluster answers.
    """
    connected(address)
    actors = list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in actors if actor["namespace"] == NAMESPACE)
