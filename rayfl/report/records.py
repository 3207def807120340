"""The run directory: the scenario, metrics, per-client scores, the final model and the environment."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from rayfl.durable import atomic_write, write_json
from rayfl.errors import ResourceError
from rayfl.planning.events import Evaluated, Event, RoundDone
from rayfl.report.client_records import ClientRecords
from rayfl.report.columns import METRICS
from rayfl.report.metrics_row import metrics_row
from rayfl.report.model_file import write_model
from rayfl.report.status import MODEL

METRICS_FILE = "metrics.jsonl"

ROUNDS_HELD = 4096
"""Committed rounds that wait for their evaluation; more of them means that the scheduler lost one."""


def check_writable(out: Path) -> None:
    """Creates the folder `out`, and a file in it for a moment.

    Raises:
        ResourceError: Nothing can be written there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise ResourceError(
            f"cannot write to the output folder '{out}': {error.strerror}; name another one with --out"
        ) from error


def check_holds_no_run(folder: Path) -> None:
    """Creates the folder, and checks that records can be kept in it.

    Raises:
        ResourceError: Nothing can be written there, or a run's records are there already.
    """
    check_writable(folder)
    if (folder / METRICS_FILE).exists():
        raise ResourceError(f"'{folder}' holds a run's records already: remove them, or name another folder")


def new_folder(out: Path, name: str, now: datetime) -> Path:
    """Makes a new folder `<out>/<name>-<time>`; a second one of the same second ends in -2, and so on.

    Raises:
        ResourceError: Nothing can be written to `out`.
    """
    check_writable(out)
    stem = f"{name}-{now:%Y%m%d-%H%M%S}"
    for folder in itertools.chain([out / stem], (out / f"{stem}-{n}" for n in itertools.count(2))):
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("the names never end")


def read_metrics(folder: Path) -> pa.Table:
    """Returns the metrics in a run's folder, so far, sorted by round.

    The columns are those of `METRICS`, and a float64 column for every score and every reported scalar, in the order
    of metrics.jsonl; null stands where a value was not finite or not reported.
    """
    path = folder / METRICS_FILE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # whole lines: a run may be writing
    names = dict.fromkeys(name for row in rows for name in row) or METRICS.names
    known = {field.name: field.type for field in METRICS}
    schema = pa.schema([(name, known.get(name, pa.float64())) for name in names])
    return pa.Table.from_pylist(rows, schema=schema).sort_by("round")


class Records:
    """What a run leaves in its folder.

    - metrics.jsonl: A line for every evaluated round, written as soon as the evaluation is in, with the columns of
      `METRICS`, the scores of the evaluation and, under their own names, the scalars that were reported in the round. A
      value that is not finite is null; `seconds`, `bytes` and `transfers` are totals since the start of the run.
    - privacy.json: Of runs with `local.dp`; see `rayfl.report.privacy`.
    - clients.parquet: See `ClientRecords`; there only if events carry anything about single clients.
    - scenario.toml, environment.json, model.safetensors: As they are handed over.

    Close it, or use it as a context manager, to complete clients.parquet. Whatever cannot be written is a ResourceError
    that names the file.

    Args:
        folder: Exists, and holds no records yet.

    Raises:
        FileExistsError: The folder holds a run's records already.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rounds: dict[int, RoundDone] = {}
        self._metrics = (folder / METRICS_FILE).open("x", encoding="utf-8")
        self._clients = ClientRecords(folder / "clients.parquet")

    @classmethod
    def create(cls, out: Path, name: str, now: datetime) -> Records:
        """Makes a new folder `<out>/<name>-<time>`; a second one of the same second ends in -2, and so on.

        Raises:
            ResourceError: Nothing can be written to `out`.
        """
        return cls(new_folder(out, name, now))

    @classmethod
    def within(cls, folder: Path) -> Records:
        """Keeps records in this very folder, which is made where it is missing.

        Raises:
            ResourceError: Nothing can be written there, or a run's records are there already.
        """
        check_holds_no_run(folder)
        return cls(folder)

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Completes the files, of a run that failed as well. Closing twice is closing once.

        Raises:
            ResourceError: They cannot be written.
        """
        with self._writing(METRICS_FILE):
            self._metrics.close()
        with self._writing("clients.parquet"):
            self._clients.close()

    def write_scenario(self, toml: str) -> None:
        """Writes scenario.toml: the resolved scenario, so that it can be run again."""
        with self._writing("scenario.toml"), atomic_write(self.folder / "scenario.toml") as path:
            path.write_text(toml, encoding="utf-8")

    def write_environment(self, facts: Mapping[str, Any]) -> None:
        """Writes environment.json: strings, numbers, lists and mappings."""
        with self._writing("environment.json"):
            write_json(self.folder / "environment.json", facts)

    def write_model(self, state_dict: Mapping[str, Tensor]) -> None:
        """Writes model.safetensors: tensors under PyTorch's names; views into one storage are stored separately."""
        write_model(self.folder / MODEL, state_dict)

    def add(self, event: Event) -> None:
        """Takes in one event; an evaluated round becomes a line of metrics.jsonl.

        Raises:
            RayflError: A reported scalar has the name of another column.
            ResourceError: The records cannot be written.
        """
        match event:
            case RoundDone():
                self._rounds[event.round] = event
                if len(self._rounds) > ROUNDS_HELD:
                    del self._rounds[next(iter(self._rounds))]
                with self._writing("clients.parquet"):
                    self._clients.add_reports(event)
            case Evaluated():
                self._add_metrics(self._rounds.pop(event.round), event)
                with self._writing("clients.parquet"):
                    self._clients.add_scores(event)

    def add_epsilons(self, phase: str, round: int, epsilons: np.ndarray) -> None:
        """Adds what every client has spent of its privacy to clients.parquet.

        Args:
            phase: Of the last round.
            round: After which.
            epsilons: [clients].
        """
        with self._writing("clients.parquet"):
            self._clients.add_epsilons(phase, round, epsilons)

    def metrics_table(self) -> pa.Table:
        """Returns the metrics so far; see `read_metrics`."""
        return read_metrics(self.folder)

    def _add_metrics(self, done: RoundDone, evaluated: Evaluated) -> None:
        row = metrics_row(done, evaluated)
        with self._writing(METRICS_FILE):
            self._metrics.write(json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n")
            self._metrics.flush()

    @contextmanager
    def _writing(self, file: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(f"cannot write '{self.folder / file}': {error.strerror or error}") from error
