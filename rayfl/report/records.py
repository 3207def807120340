"""The run directory: the scenario, metrics, per-client scores, the final model and the environment."""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
from torch import Tensor

from rayfl.durable import written_whole
from rayfl.engine.events import Evaluated, Event, RoundDone
from rayfl.errors import ResourceError

METRICS = pa.schema(
    [
        ("phase", pa.string()),
        ("round", pa.int64()),
        ("round_in_phase", pa.int64()),
        ("test_loss", pa.float64()),
        ("test_accuracy", pa.float64()),
        ("personalized_accuracy", pa.float64()),
        ("train_loss", pa.float64()),
        ("seconds", pa.float64()),
        ("bytes", pa.int64()),
        ("transfers", pa.int64()),
    ]
)
CLIENTS = pa.schema(
    [
        ("phase", pa.string()),
        ("round", pa.int64()),
        ("client", pa.int64()),
        ("samples", pa.int64()),
        ("loss", pa.float64()),
        ("accuracy", pa.float64()),
        ("personalized_accuracy", pa.float64()),
    ]
)
ROUNDS_HELD = 4096
"""Committed rounds that wait for their evaluation; more of them is a scheduler that lost one."""


def check_writable(out: Path) -> None:
    """Makes the folder `out`, and a file in it for a moment.

    Raises:
        ResourceError: nothing can be written there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise ResourceError(
            f"cannot write to the output folder '{out}': {error.strerror}; name another one with --out"
        ) from error


class Records:
    """What a run leaves in its folder; close it, or use it as a context manager, to complete `clients.parquet`.

    metrics.jsonl: a line for every evaluated round, written as soon as the evaluation is in; a value that is not
        finite is null; `seconds`, `bytes` and `transfers` are totals since the run's start.
    clients.parquet: a row per client and evaluated round; there only if evaluations carry per-client scores.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rounds: dict[int, RoundDone] = {}
        self._open = ExitStack()
        self._metrics = self._open.enter_context((folder / "metrics.jsonl").open("x", encoding="utf-8"))
        self._clients: pq.ParquetWriter | None = None

    @classmethod
    def create(cls, out: Path, name: str, now: datetime) -> Records:
        """A new folder `<out>/<name>-<time>`; a second one of the same second ends in -2, and so on.

        Raises:
            ResourceError: nothing can be written to `out`.
        """
        check_writable(out)
        stem = f"{name}-{now:%Y%m%d-%H%M%S}"
        for folder in itertools.chain([out / stem], (out / f"{stem}-{n}" for n in itertools.count(2))):
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return cls(folder)
        raise AssertionError("the names never end")

    @classmethod
    def within(cls, folder: Path) -> Records:
        """In this very folder, which is made where it is missing.

        Raises:
            ResourceError: nothing can be written there, or a run's records are there already.
        """
        check_writable(folder)
        try:
            return cls(folder)
        except FileExistsError:
            raise ResourceError(
                f"'{folder}' holds a run's records already: remove them, or name another folder"
            ) from None

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Completes the files, of a run that failed as well."""
        self._open.close()

    def write_scenario(self, toml: str) -> None:
        """scenario.toml: the resolved scenario, so that it can be run again."""
        with written_whole(self.folder / "scenario.toml") as path:
            path.write_text(toml, encoding="utf-8")

    def write_environment(self, facts: Mapping[str, Any]) -> None:
        """environment.json: versions, devices, hosts, data digests, the seed; strings, numbers, lists and mappings."""
        with written_whole(self.folder / "environment.json") as path:
            path.write_text(json.dumps(facts, indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def write_model(self, state_dict: Mapping[str, Tensor]) -> None:
        """model.safetensors: tensors under PyTorch's names; views into one storage are stored each by itself."""
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state_dict.items()}
        with written_whole(self.folder / "model.safetensors") as path:
            safetensors.torch.save_file(tensors, path)

    def add(self, event: Event) -> None:
        """Takes in what the scheduler tells; an evaluated round becomes a line of metrics.jsonl."""
        match event:
            case RoundDone():
                self._rounds[event.round] = event
                if len(self._rounds) > ROUNDS_HELD:
                    del self._rounds[next(iter(self._rounds))]
            case Evaluated():
                self._add_metrics(self._rounds.pop(event.round), event)
                if event.clients:
                    self._add_clients(event)

    def metrics_table(self) -> pa.Table:
        """The metrics so far, sorted by round: columns as in `METRICS`, null where a value was not finite."""
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        table = pa.Table.from_pylist([json.loads(line) for line in lines], schema=METRICS)
        return table.sort_by("round")

    def _add_metrics(self, done: RoundDone, evaluated: Evaluated) -> None:
        row = {
            "phase": done.phase,
            "round": done.round,
            "round_in_phase": done.round_in_phase,
            "test_loss": _finite(evaluated.loss),
            "test_accuracy": _finite(evaluated.accuracy),
            "personalized_accuracy": evaluated.personalized_accuracy,
            "train_loss": _finite(done.train_loss),
            "seconds": done.seconds,
            "bytes": done.traffic.bytes,
            "transfers": done.traffic.transfers,
        }
        self._metrics.write(json.dumps(row, allow_nan=False) + "\n")
        self._metrics.flush()

    def _add_clients(self, evaluated: Evaluated) -> None:
        if self._clients is None:
            path = self._open.enter_context(written_whole(self.folder / "clients.parquet"))
            self._clients = self._open.enter_context(pq.ParquetWriter(path, CLIENTS))
        scores = evaluated.clients
        columns: list[list[Any]] = [
            [evaluated.phase] * len(scores),
            [evaluated.round] * len(scores),
            [score.client for score in scores],
            [score.samples for score in scores],
            [score.loss for score in scores],
            [score.accuracy for score in scores],
            [score.personalized_accuracy for score in scores],
        ]
        self._clients.write_table(
            pa.Table.from_arrays([pa.array(c, t) for c, t in zip(columns, CLIENTS.types, strict=True)], schema=CLIENTS)
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
