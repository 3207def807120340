"""How a run is doing, or how it ended: status.json in its folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rayfl.durable import as_json, write_json
from rayfl.errors import DivergenceError, ResourceError
from rayfl.interruption import is_interrupt
from rayfl.planning.events import BudgetSpent, Event, HostRestarted, Recovering, RoundDone
from rayfl.reading import read_json_object, reading
from rayfl.report.liveness import Heartbeat, is_gone, this_process
from rayfl.report.reason import one_line

STATUS = "status.json"
MODEL = "model.safetensors"
UNDER_WAY = ("waiting", "running")
WRITTEN_EVERY_S = 1.0
LOST = "lost"
"""What `read_status` says of a run whose process was killed, or died with its machine."""


@dataclass(frozen=True)
class Stop:
    """Why a run ends before its last round.

    Attributes:
        callback: Who ended it, a callback or a key of the scenario.
        reason: Its own words, in one line.
        round: The last round.
    """

    callback: str
    reason: str
    round: int


class Status:
    """Writes status.json whenever the state of a run changes, and with a round if the last time is a second ago.

    The file holds

    - `status`: `waiting` (a submitted run, for a busy cluster), `running`, `finished`, `failed` or `interrupted`. The
      file of a run whose process was killed outright still has what it did then, and `read_status` says `lost`;
    - `reason`: why it waits, failed or was interrupted, in one line, else null;
    - `diverged`: whether it failed because training diverged;
    - `stopped`: which callback ended it before its last round, why, and after which round, else null;
    - `started`, `ended`: times in UTC;
    - `process`: what carries the run out: its host, number, and when it began. The file's own time is its heartbeat;
    - `phase`: the phase of the last round, null before the first;
    - `rounds`, `committed_rounds`: of the whole scenario; a round that was reported as done may be lost if the run ends
      before the server has committed it;
    - `recoveries`: how often the run went on after something of it had died;
    - `model`: the file with the model and the round that it is of, null where there is none;
    - `model_missing`: why the model of the last committed round could not be saved, else null.

    Args:
        folder: The run's own.
        rounds: Rounds of the whole scenario.
        clock: Returns seconds that only grow.
    """

    def __init__(self, folder: Path, rounds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = folder / STATUS
        self.rounds = rounds
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
        """See `EventConsumer`."""
        return {
            "started": self._started,
            "committed": self._committed,
            "phase": self._phase,
            "recoveries": self._recoveries,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `EventConsumer`."""
        self._started, self._committed = state["started"], state["committed"]
        self._phase, self._recoveries = state["phase"], state["recoveries"]

    def running(self) -> None:
        """Says that the run has begun."""
        self._write("running")

    def waiting(self, why: str) -> None:
        """Says that the cluster has no room for the run yet."""
        self._write("waiting", reason=" ".join(why.split()))

    def stop(self, stop: Stop) -> None:
        """Takes in that a callback made a round the last one."""
        self._stopped = asdict(stop)

    def finished(self) -> None:
        """Says that the run came to its end, and that its records are complete."""
        self._write("finished", model_round=self._committed)

    def ended_early(
        self, error: BaseException, model_round: int | None = None, model_missing: str | None = None
    ) -> None:
        """Says that the run failed or was interrupted.

        Args:
            error: What ended it.
            model_round: The round whose model was saved, None where there is no model.
            model_missing: Why the model of the last committed round could not be saved, None where it was.
        """
        self._write(
            "interrupted" if is_interrupt(error) else "failed",
            model_round=model_round,
            reason=one_line(error),
            diverged=diverged(error),
            model_missing=model_missing,
        )

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
        content = self._content(status, model_round, reason, diverged, model_missing)
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
        """Whether the file now has this content, in its own place on a disk that has no other: nobody shall take a run
        that has ended for one that is under way."""
        try:
            with self._path.open("r+", encoding="utf-8") as file:
                file.write(as_json(content))
                file.truncate()
        except OSError:
            return False
        return True

    def _content(
        self, status: str, model_round: int | None, reason: str | None, diverged: bool, model_missing: str | None
    ) -> dict[str, Any]:
        return {
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
            "recoveries": self._recoveries,
            "model": None if model_round is None else {"file": MODEL, "round": model_round},
            "model_missing": model_missing,
        }


def diverged(error: BaseException) -> bool:
    """Whether training diverged, rather than anything being wrong with the code or the machines."""
    return isinstance(error, DivergenceError) or bool(getattr(error, "diverged", False))


def read_status(folder: Path) -> dict[str, Any] | None:
    """The content of a run's status.json, None where there is none.

    Of a run that did not get to say how it ended, `status` is `lost`, and `reason` says what became of it.

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
    if (now := _read(folder)) != content:  # it ended this very moment
        return now
    said = f"process {process['pid']} on {process['host']} is gone: it was killed, or its machine went down"
    return content | {"status": LOST, "reason": said}


def take_for_lost(folder: Path) -> None:
    """Writes into status.json that a run is lost, for whoever knows that nobody can be carrying it out any more."""
    content = _read(folder)
    if content is not None and content["status"] in UNDER_WAY:
        write_json(folder / STATUS, content | {"status": LOST, "reason": "what carried it out is gone"})


def _read(folder: Path) -> dict[str, Any] | None:
    path = folder / STATUS
    if not path.exists():
        return None
    content = read_json_object(path, ResourceError)
    if not isinstance(content.get("status"), str):
        raise ResourceError(f"{path}: does not say how the run is doing; it is no status of a run")
    return content


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
