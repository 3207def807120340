"""A submitted run as a detached actor, which owns everything that the run starts."""

from __future__ import annotations

import math
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import ray
from pydantic import PrivateAttr
from ray import cloudpickle
from ray.exceptions import RayActorError
from ray.util import list_named_actors
from rich.console import Console

from rayfl.backends.ray.placement import release_groups_of_before
from rayfl.backends.ray.user_code import install_main_objects
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.config.execution import HostRange
from rayfl.config.scenario import Scenario
from rayfl.config.user_modules import make_importable
from rayfl.console import log_console, print_line
from rayfl.errors import RayflError
from rayfl.interruption import StopRequest, StopRequested
from rayfl.passwords import without_passwords
from rayfl.runs.archive import RunArchive
from rayfl.runs.folder import SCENARIO_FILE
from rayfl.runs.options import RunOptions
from rayfl.runs.status import LOST, UNDER_WAY, Status, read_status, readable_status
from rayfl.wording import one_line

if TYPE_CHECKING:
    import pyarrow as pa

LOG = "run.log"
"""The file in the run's folder with a submitted run's output."""

FAREWELL_S = 3.0
"""How long the process of a followed run stays after its end, so that followers see it."""

NAMESPACE = "rayfl"
"""Ray's namespace of submitted runs."""

PIECE_BYTES = 64 * 2**10
"""Ray sends smaller arguments along with a call, instead of a reference to an object that its caller owns."""

MOST_PIECES = 128
"""So many of them at most."""


@dataclass(frozen=True)
class Submission:
    """A submitted run.

    Attributes:
        scenario: The scenario to run.
        folder: The run's folder.
        options: How to run it there, with absolute paths; callbacks are those of the submitting program.
        main_objects: See `pack_main_objects`.
        priority: Of runs that wait for the cluster, those with a higher one come first.
        submitted: When it was submitted, in seconds since 1970; orders runs of the same priority.
    """

    scenario: Scenario
    folder: Path
    options: RunOptions
    main_objects: bytes
    priority: int = 0
    submitted: float = 0.0

    def packed(self) -> list[bytes]:
        """In pieces that Ray keeps with the actor: larger ones would be lost with the program that submits the run."""
        whole = cloudpickle.dumps(self)
        return [whole[first : first + PIECE_BYTES] for first in range(0, len(whole), PIECE_BYTES)]


class RunActor:
    """Executes a run in a thread, and ends its process when the run has ended.

    If the process dies, Ray starts it again, and it continues the run after its last checkpoint. It owns the run's
    actors, data and placement groups, so that none of them outlives it, however it ends.

    Args:
        packed: The submission; see `Submission.packed`.
    """

    def __init__(self, *packed: bytes) -> None:
        submission: Submission = cloudpickle.loads(b"".join(packed))
        make_importable(submission.scenario.module_folders)
        install_main_objects(submission.main_objects)
        self._submission = submission
        self._request, self._ended = StopRequest("handle.stop()"), threading.Event()
        self._watch, self._followed = _Watch(), -math.inf
        context = ray.get_runtime_context()
        self._thread = threading.Thread(target=self._run, args=[context.current_actor], daemon=True)
        self._is_restarted = context.was_current_actor_reconstructed
        if self._is_restarted:
            self.start()

    def start(self) -> None:
        if self._thread.ident is None:  # Ray repeats a call whose answer was lost
            self._thread.start()

    def folder(self) -> Path:
        return self._submission.folder

    def metrics(self) -> pa.Table:
        return RunArchive(self._submission.folder).metrics

    def status(self) -> dict[str, Any] | None:
        status = read_status(self._submission.folder)
        if status and status["status"] == LOST:  # that of the process before
            return None
        return status | self._watch.last if status and status["status"] in UNDER_WAY else status

    def waits(self) -> tuple[float, float, str] | None:
        """What orders this run among those that wait for room on the cluster; None if it does not wait.

        Runs with a range of workers have no turn: their requests wait in Ray.
        """
        status = readable_status(self._submission.folder)
        elastic = isinstance(self._submission.scenario.resources.hosts, HostRange)
        return None if elastic or status is None or status["status"] != "waiting" else self._order

    @property
    def _order(self) -> tuple[float, float, str]:
        return -self._submission.priority, self._submission.submitted, str(self._submission.folder)

    def _ahead(self) -> int:
        """How many other waiting runs of the cluster come first."""
        if isinstance(self._submission.scenario.resources.hosts, HostRange):
            return 0
        others: list[tuple[float, float, str] | None] = []
        for name in names_of_runs():
            with suppress(ValueError, RayActorError):  # it has ended meanwhile
                other: Any = ray.get_actor(name, namespace=NAMESPACE)
                others.append(ray.get(other.waits.remote()))
        return sum(order is not None and order < self._order for order in others)

    def printed(self, since: int) -> tuple[str, int]:
        self._followed = time.monotonic()
        return lines_of(self._submission.folder / LOG, since)

    def stop(self) -> None:
        self._request.make()

    def ended(self, timeout_s: float) -> bool:
        """Waits up to `timeout_s` seconds for the end of the run; returns whether it has ended."""
        return self._ended.wait(timeout_s)

    def _run(self, this: Any) -> None:
        try:
            self._execute(log_console(self._submission.folder / LOG))
        finally:
            self._ended.set()
            if time.monotonic() - self._followed < FAREWELL_S:  # a follower still wants to know how it ended
                time.sleep(FAREWELL_S)
            ray.kill(this)

    def _execute(self, console: Console) -> None:
        from rayfl.runs.launch import Launch, launch_run
        from rayfl.runs.run_lock import HeldError

        submission, folder = self._submission, self._submission.folder
        begun = self._is_restarted and (folder / SCENARIO_FILE).is_file()
        try:
            if self._is_restarted:
                console.print("warning: the process of the run died, and was restarted")
                release_groups_of_before()
            options = replace(submission.options, callbacks=[*submission.options.callbacks, self._watch])
            options = options.begun_in(folder, begun)
            launch = Launch(options, request=self._request, ahead=self._ahead)
            launch_run(submission.scenario, launch, console)
        except BaseException as error:  # nothing above this thread reports it
            message = str(error) if isinstance(error, RayflError) else traceback.format_exc()
            told = one_line(error) if isinstance(error, StopRequested) else f"error: {without_passwords(message)}"
            print_line(console, told)
            if isinstance(error, HeldError):
                return  # the folder's records are those of another run
            status = readable_status(folder)
            if status is None or status["status"] in UNDER_WAY:  # it failed before it wrote records
                rounds = sum(phase.rounds for phase in submission.scenario.phases)
                Status(folder, rounds).ended_early(error)


def names_of_runs() -> list[str]:
    """The names of all active submitted runs of the cluster this program is attached to, in alphabetical order."""
    return sorted(actor["name"] for actor in list_named_actors(all_namespaces=True) if actor["namespace"] == NAMESPACE)


class _Watch(Callback):
    """Reports the latest round."""

    settles: ClassVar[bool] = False

    _last: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def last(self) -> dict[str, Any]:
        """The latest round and its phase, under the keys of status.json."""
        return self._last

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        self._last = {"committed_rounds": run.round.round, "phase": run.round.phase}


def lines_of(log: Path, since: int) -> tuple[str, int]:
    """The complete lines of a file from a byte position on, and where they end; none if the file does not exist."""
    try:
        with log.open("rb") as file:
            file.seek(since)
            read = file.read()
    except FileNotFoundError:
        return "", since
    whole = read[: read.rfind(b"\n") + 1]
    return whole.decode(errors="replace"), since + len(whole)
