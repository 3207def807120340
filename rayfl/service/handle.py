"""`rayfl.Handle` and `rayfl.attach`: follow a submitted run from any program that is connected to its cluster."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError

from rayfl.backends.ray.connection import connected
from rayfl.config.registry import nearest
from rayfl.errors import RayflError, ResourceError, ScenarioError
from rayfl.files import reading
from rayfl.runs.archive import RunArchive
from rayfl.runs.status import LOST, UNDER_WAY, read_status
from rayfl.service.run_actor import LOG, NAMESPACE, lines_of, names_of_runs

if TYPE_CHECKING:
    import pyarrow as pa

    from rayfl.runs.result import Result

ASKS_EVERY_S = 5.0


class Handle:
    """A submitted run, which continues without its handle; made by `rayfl.submit` and `rayfl.attach`.

    Attributes:
        name: The name for `rayfl.attach`.
        folder: The folder with its records, on the machine that submitted it.

    Example::

        handle = rayfl.attach("cyclic", address="auto")
        handle.status()["committed_rounds"]
        handle.stop()                          # ends the run after the current round
        model = handle.result().state_dict     # waits until the run has ended
    """

    def __init__(self, name: str, actor: Any, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._actor = actor

    def status(self) -> dict[str, Any]:
        """The content of status.json.

        It says whether the run waits for resources, runs, has ended or is lost, and why; how many of the scenario's
        `rounds` are complete (`committed_rounds`), and the `phase` of the latest one. Until the run has loaded its
        data, it is only `{"status": "preparing"}`.

        Raises:
            ResourceError: The run has ended, and its records are not on this machine.
        """
        try:
            status: dict[str, Any] | None = ray.get(self._actor.status.remote())
        except RayActorError:
            status = self._recorded()
        return status or {"status": "preparing"}

    @property
    def resuming(self) -> str:
        """The command that continues the run from its last checkpoint, once it has ended."""
        return f"rayfl resume {shlex.quote(str(self.folder))}"

    def over(self, timeout_s: float = 0.0) -> bool:
        """Whether the run has ended, successfully or not; waits at most `timeout_s` seconds for it to end."""
        try:
            return bool(ray.get(self._actor.ended.remote(timeout_s)))
        except ActorUnavailableError:  # temporary
            return False
        except RayActorError:
            return True

    def printed(self, since: int = 0) -> tuple[str, int]:
        """The run's output so far, in whole lines.

        Args:
            since: The position to start from, as an earlier call returned it.

        Returns:
            The lines and the position where they end. No lines if the run has ended and its records are on another
            machine.
        """
        try:
            printed: tuple[str, int] = ray.get(self._actor.printed.remote(since))
        except RayActorError:
            return lines_of(self.folder / LOG, since)
        return printed

    def metrics(self) -> pa.Table:
        """The metrics so far, one row for each evaluated round.

        Raises:
            ResourceError: As `status`.
        """
        try:
            return ray.get(self._actor.metrics.remote())
        except RayActorError:
            self._recorded()
            return RunArchive(self.folder).metrics

    def stop(self) -> None:
        """Ends the run after the current round and keeps the model of that round. Returns at once.

        A run that has not begun its first round, because it waits for resources or for the scenario that it starts
        from, ends as interrupted.
        """
        try:
            ray.get(self._actor.stop.remote())
        except RayActorError:
            return

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the run has ended, successfully or not.

        Args:
            timeout_s: The longest time to wait, in seconds; by default unlimited.

        Returns:
            Whether the run has ended.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            wait_s = ASKS_EVERY_S if deadline is None else min(ASKS_EVERY_S, deadline - time.monotonic())
            try:
                ray.get(self._actor.ended.remote(max(wait_s, 0.0)))
            except ActorUnavailableError:  # temporary
                continue
            except RayActorError:
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def result(self) -> Result:
        """Waits for the run to end and returns the same result as `rayfl.run`.

        Raises:
            RayflError: The run failed or was interrupted; run.log in its folder has the full error.
            ResourceError: Its process was killed, or its records are not on this machine.
        """
        from safetensors.torch import load_file

        from rayfl.runs.result import Result

        self.wait()
        status = self._recorded()
        if status["status"] in (*UNDER_WAY, LOST):
            raise ResourceError(
                f"run '{self.name}': its process was killed or its node lost; earlier records are in {self.folder}; "
                f"continue with `{self.resuming}`"
            )
        if status["status"] != "finished":
            raise RayflError(f"run '{self.name}' {status['status']}: {status['reason']}; see {self.folder / LOG}")
        archive = RunArchive(self.folder)
        with reading(archive.model, "as safetensors", ResourceError):
            model = load_file(archive.model)
        return Result(archive.scenario, archive.metrics, model, self.folder)

    def _recorded(self) -> dict[str, Any]:
        status = read_status(self.folder)
        if status is None:
            raise ResourceError(
                f"run '{self.name}' has ended, and its records are not on this machine: look for {self.folder} on the "
                "machine that submitted it"
            )
        return status


def attach(name: str, address: str | None = None) -> Handle:
    """Returns a handle to a submitted run that is still active.

    Args:
        name: The run's name (`Handle.name`).
        address: The cluster's address, as for `rayfl.run`, if this program is not connected to it.

    Returns:
        A handle to follow, stop and wait for the run.

    Raises:
        ScenarioError: No active run has this name.
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
            f"no active run on this cluster is called '{name}' (the records of an ended run are in its folder); "
            f"{nearest(name, active) if (active := names_under_way()) else 'no run is active'}"
        ) from None
    return Handle(name, actor, folder)


def names_under_way(address: str | None = None) -> list[str]:
    """The names of all active submitted runs, in alphabetical order.

    Args:
        address: As for `attach`.

    Raises:
        ResourceError: No cluster answers.
    """
    connected(address)
    return names_of_runs()
