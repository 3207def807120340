"""Runs that are left after some round and reopened later, and what they leave."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from pydantic import PrivateAttr
from rich.console import Console
from safetensors import safe_open

import rayfl
from rayfl.backends.inline import InlineSession
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.callbacks.model_files import BestModel
from rayfl.callbacks.ranking import EarlyStopping
from rayfl.config.scenario import Scenario
from rayfl.engine.backend import BackendSession
from rayfl.engine.events import RoundSettled
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.state.snapshots import RunSnapshot
from rayfl.engine.state.state_store import StateStore
from rayfl.files import write_json
from rayfl.models.flat import FlatModel
from rayfl.runs.archive import RunArchive
from rayfl.runs.preparation import prepare
from rayfl.runs.records import Records
from rayfl.runs.run import Run
from tests.callbacks.scene import tables
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import snapshot_of

NOISE = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "accountant": "rdp"}
LOCAL = {"lr": 0.1, "batch_size": 4, "dp": NOISE}
SCENE: dict[str, Any] = {
    "phases": [
        {"name": "cyclic", "schedule": "relay", "rounds": 2, "cohort": 2, "local": LOCAL},
        {"name": "stateful", "rounds": 4, "cohort": 3, "algorithm": "scaffold", "local": LOCAL},
        {"name": "adaptive", "rounds": 3, "cohort": 3, "algorithm": "fedadam", "local": LOCAL},
    ],
    "evaluation": {"every": 2, "per_client": True},
}
"""Nine rounds: relays, states of clients and of the server, samples' privacy, clients' scores."""
ROUNDS = 9
STATE = "state.json"

Open = Callable[[RunPlan], AbstractContextManager[BackendSession]]


class Memory(Callback):
    """Keeps what it was shown, through a stop."""

    _seen: list[Any] = PrivateAttr(default_factory=list)

    def on_start(self, run: RunSoFar) -> None:
        self._seen.append(["start", run.round.round if run.round else 0, len(run.metrics), _digest(run)])

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        self._seen.append(["round", run.round.round, len(run.metrics), _digest(run), dict(run.round.scalars)])
        run.log(remembered=float(len([entry for entry in self._seen if entry[0] == "round"])))

    def on_evaluation(self, run: RunSoFar) -> None:
        self._seen.append(["evaluation", run.metrics[-1]["round"], run.metrics[-1]["test_loss"]])

    def state(self) -> Mapping[str, Any]:
        return {"seen": self._seen}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._seen = list(state["seen"])

    def seen(self) -> list[Any]:
        """Without starts, of which a run has one for each time it is opened."""
        return [entry for entry in self._seen if entry[0] != "start"]


def _digest(run: RunSoFar) -> str:
    return sha256(b"".join(tensor.numpy().tobytes() for tensor in run.model().values())).hexdigest()


def prepared(**changes: Any) -> tuple[RunPlan, FlatModel]:
    job, model = prepare(Scenario.from_tables(tables(**SCENE) | changes), Path("no-data-here"))
    return replace(job, settles=True), model


@dataclass
class Followed:
    """What a run leaves, but for the clock."""

    folder: Path
    memory: Memory
    stopping: EarlyStopping

    def left(self) -> dict[str, Any]:
        rows = [{key: value for key, value in row.items() if key != "seconds"} for row in RunArchive(self.folder).rows]
        clients = pq.read_table(self.folder / "clients.parquet")
        return {
            "metrics": rows,
            "clients": (clients.schema.names, clients.to_pylist()),
            "model": content(self.folder / "model.safetensors"),
            "best": content(self.folder / "best.safetensors"),
            "privacy": json.loads((self.folder / "privacy.json").read_text()),
            "callbacks": (self.memory.seen(), self.stopping.state()),
            "rounds": json.loads((self.folder / "status.json").read_text())["committed_rounds"],
        }


def content(path: Path) -> Any:
    """Tensors and metadata; safetensors writes the latter in any order."""
    with safe_open(path, "np") as file:
        return file.metadata(), {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


def followed(
    folder: Path,
    job: RunPlan,
    model: FlatModel,
    open: Open,
    each: Callable[[Run, BackendSession, RoundSettled], None] = lambda *_: None,
    state: Mapping[str, Any] | None = None,
    snapshot: tuple[RunSnapshot, StateStore] | None = None,
) -> Followed:
    """Opens a folder, or reopens it where a state is given, and runs to the end.

    Args:
        folder: The run's own.
        job: What runs.
        model: Of the job.
        open: Opens a session.
        each: Called at every round that is settled.
        state: Of the run that is reopened.
        snapshot: Of its session, and the store that has its states.
    """
    memory, stopping = Memory(name="memory"), EarlyStopping(name="stopping", patience=100)
    callbacks = [memory, stopping, BestModel(name="best")]
    with (
        Records.within(folder) if state is None else Records(folder, reopened=True) as records,
        Run(job, model, records, callbacks, Console(quiet=True), state) as run,
    ):
        session = run.connect(
            open(job), "inline", None if snapshot is None else lambda opened: opened.restore(*snapshot)
        )
        for settled in run.follow():
            each(run, session, settled)
        run.finish()
    return Followed(folder, memory, stopping)


class LeftError(Exception):
    """The run was left on purpose."""


def read_state(folder: Path) -> dict[str, Any]:
    """The state that `Leaving` took, as a file has it."""
    state: dict[str, Any] = json.loads((folder / STATE).read_text())
    return state


@dataclass
class Leaving:
    """Takes a snapshot after one round and a state after another, and leaves the run after a third.

    Attributes:
        snapshot_after: The round.
        state_after: The round.
        leave_after: The round.
        store: For the snapshot's states.
    """

    snapshot_after: int
    state_after: int
    leave_after: int
    store: StateStore = field(default_factory=MemoryStore)
    snapshot: tuple[RunSnapshot, StateStore] | None = None

    def __call__(self, run: Run, session: BackendSession, settled: RoundSettled) -> None:
        if settled.round == self.snapshot_after:
            assert isinstance(session, InlineSession)
            self.snapshot = snapshot_of(session._scheduler, self.store), self.store
        if settled.round == self.state_after:
            write_json(run._records.folder / STATE, run.state())
        if settled.round == self.leave_after:
            raise LeftError


class Does(Callback):
    """Does something after a round."""

    round: int
    what: Any

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round == self.round:
            self.what()


class EndsAfter(Callback):
    """Ends a run after a round: `error` raises, others send a signal, once or twice, or kill the process.

    `alarm` sends that of the run's timer.
    """

    round: int
    how: str = "error"

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round != self.round:
            return
        if self.how == "error":
            raise RuntimeError("left on purpose")
        sent = {"kill": signal.SIGKILL, "alarm": signal.SIGALRM}.get(self.how, signal.SIGTERM)
        for _ in range(2 if self.how == "twice" else 1):
            os.kill(os.getpid(), sent)


def run_scene(
    folder: Path, *callbacks: Callback, resume: bool = False, minutes: float | None = None, **changes: Any
) -> rayfl.Result:
    """Runs SCENE with a checkpoint after every round, or resumes it from its folder."""
    where: Any = {"resume": folder} if resume else {"folder": folder}
    scenario = tables(**SCENE) | {"checkpoint": {"rounds": 1}} | changes
    console = Console(width=10_000)
    return rayfl.run(scenario, backend="inline", callbacks=callbacks, minutes=minutes, console=console, **where)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in RunArchive(folder).rows]


def assert_same(result: rayfl.Result, undisturbed: rayfl.Result) -> None:
    assert all(torch.equal(result.state_dict[name], value) for name, value in undisturbed.state_dict.items())
    assert rows(result.directory) == rows(undisturbed.directory)
    assert json.loads((result.directory / "status.json").read_text())["status"] == "finished"
