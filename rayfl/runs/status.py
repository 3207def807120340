"""The status of a run: status.json in its folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rayfl.engine.events import BudgetSpent, Event, HostRestarted, Recovering, RoundDone
from rayfl.errors import DivergenceError, ResourceError
from rayfl.files import as_json, read_json_object, reading, write_json
from rayfl.interruption import is_interrupt
from rayfl.runs.liveness import Heartbeat, is_gone, this_process
from rayfl.wording import one_line

STATUS = "status.json"
MODEL = "model.safetensors"
UNDER_WAY = ("waiting", "running")
WRITTEN_EVERY_S = 1.0
LOST = "lost"
"""The status that `read_status` gives a run whose process was killed, or died with its machine."""


@dataclass(frozen=True)
class Stop:
    """Why a run ends before its last round.

    Attributes:
        callback: The callback, or the key of the scenario, that ended it.
        reason: Its reason, in one line.
        round: The last round.
    """

    callback: str
    reason: str
    round: int


class Status:
    """Writes status.json whenever the state of a run changes, and at most once a second after a round.

    The file has

    - `status`: `waiting` (a submitted run, for a busy cluster), `running`, `finished`, `failed` or `interrupted`. If
      the process of a run was killed outright, the file keeps its last status, and `read_status` returns `lost`;
    - `reason`: why it waits, failed or was interrupted, in one line, else null;
    - `diverged`: whether it failed because training diverged;
    - `stopped`: the callback that ended it before its last round, its reason and the round, else null;
    - `started`, `ended`: times in UTC;
    - `process`: the process of the run: its machine, its pid and when it began. The modification time of the file is
      its heartbeat;
    - `phase`: the phase of the last round, null before the first;
    - `rounds`, `committed_rounds`: of the whole scenario; a round that was reported as done may be lost if the run ends
      before the server has committed it;
    - `workers`, `nodes`: how many worker processes the run has, on how many nodes; 0 before they have started;
    - `recoveries`: how often the run continued after one of its processes had died;
    - `model`: the file with the model, and its round; null if there is none;
    - `model_missing`: why the model of the last committed round could not be saved, else null.

    Args:
        folder: The folder of the run.
        rounds: Rounds of the whole scenario.
        clock: Returns monotonic seconds.

    Attributes:
        hosts: Returns the description of each worker process that the run has (`BackendSession.hosts`).
    """

    def __init__(self, folder: Path, rounds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = folder / STATUS
        self.rounds = rounds
        self.hosts: Callable[[], Sequence[Mapping[str, str]]] = tuple
        self._started = _now()
        self._committed = self._recoveries = 0
        self._phase: str | None = None
        self._clock, self._written = clock, clock()
        self._stopped: dict[str, Any] | None = None
        self._heartbeat: Heartbeat | None = None

    def add(self, event: Event) -> None:
        """Takes in one event."""
        if isinstance(event, RoundDone):
            self._committed, self._phase = event.round, event.phase
            if self._clock() - self._written >= WRITTEN_EVERY_S:
                self._write("running")
        if isinstance(event, Recovering | HostRestarted):
            self._recoveries += 1
        if isinstance(event, BudgetSpent) and event.ends_run:
            self.stop(Stop(event.limit, event.reason, self._committed))

    def state(self) -> dict[str, Any]:
        return {
            "started": self._started,
            "committed": self._committed,
            "phase": self._phase,
            "recoveries": self._recoveries,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._started, self._committed = state["started"], state["committed"]
        self._phase, self._recoveries = state["phase"], state["recoveries"]

    def running(self) -> None:
        """Writes that the run has begun."""
        self._write("running")

    def waiting(self, why: str) -> None:
        """Writes that the cluster has no room for the run yet."""
        self._write("waiting", reason=" ".join(why.split()))

    def stop(self, stop: Stop) -> None:
        """Records that a callback ended the run."""
        self._stopped = asdict(stop)

    def finished(self) -> None:
        """Writes that the run finished and that its records are complete."""
        self._write("finished", model_round=self._committed)

    def ended_early(
        self, error: BaseException, model_round: int | None = None, model_missing: str | None = None
    ) -> None:
        """Writes that the run failed or was interrupted.

        Args:
            error: The error or interrupt that ended it.
            model_round: The round of the saved model, None if there is no model.
            model_missing: Why the model of the last committed round could not be saved, None if it was.
        """
        self._write(
            "interrupted" if is_interrupt(error) else "failed",
            model_round=model_round,
            reason=one_line(error),
            diverged=diverged(error),
            model_missing=model_missing,
        )

    def abandon(self) -> None:
        """Leaves the file to another process."""
        if self._heartbeat:
            self._heartbeat.stop()

    def _write(
        self,
        status: str,
        model_round: int | None = None,
        reason: str | None = None,
        diverged: bool = False,
        model_missing: str | None = None,
    ) -> None:
        if status not in UNDER_WAY and self._heartbeat:
            self._heartbeat.stop()
        hosts = self.hosts()
        content = {
            "status": status,
            "reason": reason,
            "diverged": diverged,
            "stopped": self._stopped,
            "started": self._started,
            "ended": None if status in UNDER_WAY else _now(),
            "process": this_process(),
            "phase": self._phase,
            "rounds": self.rounds,
            "committed_rounds": self._committed if model_round is None else model_round,
            "workers": len(hosts),
            "nodes": len({host["node"] for host in hosts}),
            "recoveries": self._recoveries,
            "model": None if model_round is None else {"file": MODEL, "round": model_round},
            "model_missing": model_missing,
        }
        try:
            write_json(self._path, content)
        except OSError as error:
            if status not in UNDER_WAY and self._overwritten(content):
                return
            raise ResourceError(f"cannot write '{self._path}': {error.strerror or error}") from error
        self._written = self._clock()
        if status in UNDER_WAY and (not self._heartbeat or self._heartbeat.is_over):
            self._heartbeat = Heartbeat(self._path)

    def _overwritten(self, content: Mapping[str, Any]) -> bool:
        """Overwrites the file in place, for a full disk that has no room for a new one; returns whether that worked.

        Otherwise a run that has ended would look like one that is still running.
        """
        try:
            with self._path.open("r+", encoding="utf-8") as file:
                file.write(as_json(content))
                file.truncate()
        except OSError:
            return False
        return True


def diverged(error: BaseException) -> bool:
    """Whether training diverged, as opposed to a fault of the code or the machines."""
    return isinstance(error, DivergenceError) or bool(getattr(error, "diverged", False))


def read_status(folder: Path) -> dict[str, Any] | None:
    """The content of the status.json of a run, None if there is none.

    If the process of the run died without writing how it ended, `status` is `lost`, and `reason` describes it.

    Raises:
        ResourceError: The file is damaged.
    """
    content = _read(folder)
    if content is None or content["status"] not in UNDER_WAY or "process" not in content:
        return content
    process = content["process"]
    try:
        with reading(folder / STATUS, "as the status of a run", ResourceError):
            gone = is_gone(process, folder / STATUS)
    except ResourceError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    if not gone:
        return content
    if (now := _read(folder)) != content:  # the run ended just now
        return now
    reason = f"process {process['pid']} on {process['host']} is gone: it was killed, or its machine went down"
    return content | {"status": LOST, "reason": reason}


def readable_status(folder: Path, say: Callable[[str], None] = lambda _: None) -> dict[str, Any] | None:
    """As `read_status`, but None if the file is damaged, for what a damaged file must not block.

    Args:
        folder: The folder of the run.
        say: Receives why the file cannot be read.
    """
    try:
        return read_status(folder)
    except ResourceError as error:
        say(str(error))
        return None


def mark_lost(folder: Path) -> None:
    """Marks a run as lost in status.json, for callers that know that no process still runs it."""
    content = readable_status(folder)
    if content is not None and content["status"] in UNDER_WAY:
        write_json(folder / STATUS, content | {"status": LOST, "reason": "its process is gone"})


def _read(folder: Path) -> dict[str, Any] | None:
    path = folder / STATUS
    if not path.exists():
        return None
    content = read_json_object(path, ResourceError)
    if not isinstance(content.get("status"), str):
        raise ResourceError(f"{path}: not the status of a run: it has no `status`")
    return content


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
