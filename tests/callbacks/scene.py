"""A small run for the tests of callbacks, and callbacks of a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import PositiveInt, PrivateAttr
from rich.console import Console
from safetensors.numpy import load_file

import rayfl
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.runs.result import Result

LOCAL: dict[str, Any] = {"epochs": 2, "batch_size": 4, "lr": 0.1, "momentum": 0.5, "lr_decay": 0.9}
RELAY: dict[str, Any] = {"name": "cyclic", "schedule": "relay", "rounds": 2, "cohort": 3, "local": LOCAL}
PLAIN: dict[str, Any] = {"name": "plain", "rounds": 4, "cohort": 5, "local": LOCAL}
STATEFUL: dict[str, Any] = {"name": "stateful", "rounds": 4, "cohort": 5, "algorithm": "scaffold", "local": LOCAL}


def tables(**changes: Any) -> dict[str, Any]:
    """Twelve clients on points in four dimensions; a relay, then FedAvg; every round is evaluated."""
    return {
        "name": "scene",
        "data": {"name": "tests.algorithms.scene:people"},
        "model": {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.3},
        "phases": [RELAY, PLAIN],
        "resources": {"hosts": 2, "relay": "spread"},
    } | changes


def run(out: Path, backend: Any = "inline", callbacks: Any = (), named: Any = (), **changes: Any) -> Result:
    """Runs the scene with callbacks that the program hands over; those in `named` are in the scenario."""
    whole = tables(**changes) | {"callbacks": list(named)}
    return rayfl.run(whole, backend=backend, out=out, callbacks=callbacks, console=Console(quiet=True))


def model_of(result: Result) -> dict[str, np.ndarray]:
    return load_file(result.directory / "model.safetensors")


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def figures(result: Result) -> list[dict[str, Any]]:
    """The metrics, but for the seconds."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in result.metrics.to_pylist()]


class StopAt(Callback):
    """Stops after a certain round, either as soon as it is committed or once it is evaluated."""

    round: PositiveInt
    once_evaluated: bool = False

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round == self.round and not self.once_evaluated:
            run.stop("as told")

    def on_evaluation(self, run: RunSoFar) -> None:
        assert run.round is not None
        if run.round.round == self.round and self.once_evaluated:
            run.stop("as told")


class Diary(Callback):
    """Writes down what it is shown, and in which order."""

    _entries: list[Any] = PrivateAttr(default_factory=list)

    def on_start(self, run: RunSoFar) -> None:
        self._entries.append("start")

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        self._entries.append(("round", run.round.round, run.round.train_loss, len(run.metrics), self._digest(run)))

    def on_evaluation(self, run: RunSoFar) -> None:
        row = run.metrics[-1]
        self._entries.append(("evaluation", row["round"], row["test_loss"], self._digest(run)))

    def on_end(self, run: RunSoFar) -> None:
        self._entries.append(("end", run.ended))

    def entries(self) -> list[Any]:
        return self._entries

    def _digest(self, run: RunSoFar) -> bytes:
        return b"".join(tensor.numpy().tobytes() for tensor in run.model().values())


class Notes(Callback):
    """Notes every round and evaluation through stops, needs no settled rounds, and adds columns from both."""

    settles = False

    _rounds: list[int] = PrivateAttr(default_factory=list)
    _evaluated: list[int] = PrivateAttr(default_factory=list)

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        self._rounds.append(run.round.round)
        run.log(noted=float(len(self._rounds)))

    def on_evaluation(self, run: RunSoFar) -> None:
        assert run.round is not None
        row = run.metrics[-1]
        assert (row["round"], row["noted"], row["bytes"]) == (run.round.round, row["round"], run.round.traffic.bytes)
        self._evaluated.append(run.round.round)
        run.log(twice=2 * row["test_loss"], reporting=float(len(run.round.client_scalars)))

    def on_end(self, run: RunSoFar) -> None:
        assert self._rounds == list(range(1, len(self._rounds) + 1))
        assert self._evaluated == [row["round"] for row in run.metrics]

    def state(self) -> dict[str, Any]:
        return {"rounds": self._rounds, "evaluated": self._evaluated}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._rounds, self._evaluated = list(state["rounds"]), list(state["evaluated"])


class Faulty(Callback):
    """A user's own that raises."""

    hook: str
    round: int = 0

    def on_start(self, run: RunSoFar) -> None:
        self._raise("on_start", run)

    def on_round(self, run: RunSoFar) -> None:
        self._raise("on_round", run)

    def on_evaluation(self, run: RunSoFar) -> None:
        self._raise("on_evaluation", run)

    def on_end(self, run: RunSoFar) -> None:
        self._raise("on_end", run)

    def _raise(self, hook: str, run: RunSoFar) -> None:
        if hook == self.hook and self.round in (0, run.round.round if run.round else 0):
            raise KeyError("no such column")
