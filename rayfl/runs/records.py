"""The run directory: the scenario, metrics, per-client scores, the final model and the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from rayfl.data.dataset import ClientNames
from rayfl.data.split_facts import ShownSplit
from rayfl.engine.columns import metrics_row
from rayfl.engine.events import Evaluated, Event, RoundDone
from rayfl.engine.plain_events import plain_round, round_from
from rayfl.errors import CheckpointError, ResourceError
from rayfl.files import as_json, atomic_write
from rayfl.models.model_file import write_model
from rayfl.runs.archive import RunArchive
from rayfl.runs.client_records import ClientRecords
from rayfl.runs.folder import (
    CLIENTS_FILE,
    CONFUSION_FILE,
    ENVIRONMENT_FILE,
    METRICS_FILE,
    SCENARIO_FILE,
    SPLIT_FILE,
    check_holds_no_run,
    new_folder,
)
from rayfl.runs.metrics_file import MetricsFile
from rayfl.runs.status import MODEL

ROUNDS_HELD = 4096
"""Most committed rounds that wait for their evaluation."""


class Records:
    """Writes the records of a run to its folder.

    - metrics.jsonl: A line for every evaluated round, written as soon as the evaluation arrives, with the columns of
      `METRICS`, the scores of the evaluation and the scalars that were reported in the round. Values that are not
      finite are null; `seconds`, `bytes` and `transfers` are totals since the start of the run.
    - privacy.json: See `rayfl.runs.privacy_record`.
    - confusion.json: The confusion matrix of the latest evaluation, if it has one; written by `state` and `close`.
    - clients.parquet: See `ClientRecords`; only if events have scores or scalars of single clients.
    - scenario.toml, environment.json, split.json, model.safetensors: Written by their own methods.

    Close it, or use it as a context manager, to complete clients.parquet. If a file cannot be written, it raises a
    ResourceError that names the file.

    Args:
        folder: An existing folder. It has no records yet, unless `restore` follows.
        reopened: Whether the folder has the records of a run, to be continued.

    Attributes:
        where: Where users find the records: the folder, unless they are published elsewhere.
        counts_classes: Whether confusion.json is written.

    Raises:
        FileExistsError: The folder already has the records of a run and is not `reopened`.
    """

    def __init__(self, folder: Path, reopened: bool = False) -> None:
        self.folder, self.where = folder, str(folder)
        self._rounds: dict[int, RoundDone] = {}
        self._lines = self._last_evaluated = 0
        self._metrics = MetricsFile(folder / METRICS_FILE, reopened)
        self._small: dict[str, str] = {}
        self._confusion: dict[str, object] = {}
        self.counts_classes = True
        self._clients = ClientRecords(folder / CLIENTS_FILE)

    @classmethod
    def create(cls, out: Path, name: str, now: datetime) -> Records:
        """Makes a new folder `<out>/<name>-<time>`; a second one within the same second ends in -2, and so on.

        Raises:
            ResourceError: `out` is not writable.
        """
        return cls(new_folder(out, name, now))

    @classmethod
    def within(cls, folder: Path) -> Records:
        """Keeps records in this folder, and creates it if it is missing.

        Raises:
            ResourceError: The folder is not writable, or already has the records of a run.
        """
        check_holds_no_run(folder)
        (folder / METRICS_FILE).unlink(missing_ok=True)
        return cls(folder)

    def state(self) -> dict[str, Any]:
        """See `EventConsumer`. All records so far are on disk afterwards.

        Raises:
            ResourceError: The records cannot be written.
        """
        with self._writing(METRICS_FILE):
            self._metrics.sync()
        with self._writing(CLIENTS_FILE):
            clients = self._clients.state()
        self._write_confusion()
        return {
            "lines": self._lines,
            "last_evaluated": self._last_evaluated,
            "not_evaluated": [plain_round(done) for done in self._rounds.values() if done.round > self._last_evaluated],
            "clients": clients,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `EventConsumer`. Removes records that were written later: the resumed run writes them again.

        Raises:
            ResourceError: The records cannot be written, are damaged, or lack rows that the state counts.
        """
        self._lines, self._last_evaluated = state["lines"], state["last_evaluated"]
        self._rounds = {done.round: done for done in map(round_from, state["not_evaluated"])}
        try:
            with self._writing(METRICS_FILE):
                self._metrics.keep(self._lines)
            with self._writing(CLIENTS_FILE):
                self._clients.restore(state["clients"])
        except CheckpointError as error:
            raise CheckpointError(f"{error}; restore it from a copy, or run the scenario in another folder") from None

    def __enter__(self) -> Records:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Completes the files, also after a failure; does nothing the second time.

        Raises:
            ResourceError: They cannot be written.
        """
        with self._writing(METRICS_FILE):
            self._metrics.close()
        with self._writing(CLIENTS_FILE):
            self._clients.close()
        self._write_confusion()

    def abandon(self) -> None:
        """Leaves the files as they are, since another process writes them now."""
        self._metrics.abandon()
        self._clients.abandon()

    def write_scenario(self, toml: str) -> None:
        """Writes scenario.toml: the resolved scenario, which can be run again."""
        self._write_small(SCENARIO_FILE, toml)

    def write_environment(self, facts: Mapping[str, Any]) -> None:
        """Writes environment.json: strings, numbers, lists and mappings."""
        self._write_small(ENVIRONMENT_FILE, as_json(facts))

    def write_split(self, split: ShownSplit) -> None:
        """Writes split.json: the samples and classes of some clients."""
        self._write_small(SPLIT_FILE, json.dumps(asdict(split)))

    def write_model(self, state_dict: Mapping[str, Tensor], file: str = MODEL) -> None:
        """Writes model.safetensors, or another file; see `rayfl.models.model_file.write_model`."""
        path = self.folder / file
        if path.parent != self.folder:
            with self._writing(file):
                path.parent.mkdir(exist_ok=True)
        write_model(path, state_dict)

    def add(self, event: Event) -> None:
        """Takes in one event; an evaluated round becomes a line of metrics.jsonl.

        Raises:
            RayflError: A reported scalar has the name of another column.
            ResourceError: The records cannot be written.
        """
        match event:
            case RoundDone():
                self._rounds[event.round] = _without_clients(event)
                if len(self._rounds) > ROUNDS_HELD:
                    del self._rounds[next(iter(self._rounds))]
                with self._writing(CLIENTS_FILE):
                    self._clients.add_reports(event)
            case Evaluated():
                if event.confusion and self.counts_classes:
                    self._confusion = {"phase": event.phase, "round": event.round, "samples": event.confusion}
                try:
                    self._add_metrics(self._rounds.pop(event.round), event)
                finally:  # a line that cannot be written is kept for later, and so are these rows
                    with self._writing(CLIENTS_FILE):
                        self._clients.add_scores(event)

    def check_exists(self) -> None:
        """Checks that the folder still exists.

        Raises:
            ResourceError: It was removed.
        """
        if self._metrics.is_gone():
            raise ResourceError(f"'{self.folder}' was removed while the run was writing to it")

    def recreate(self) -> None:
        """Recreates the folder if it was removed, with the scenario, the environment and all metrics so far.

        Raises:
            ResourceError: It cannot be created.
        """
        if not self._metrics.is_gone():
            return
        with self._writing(METRICS_FILE):
            self._metrics.recreate()
        for file, text in self._small.items():
            self._write_small(file, text)

    def name_clients(self, names: ClientNames) -> None:
        """Adds a column with the clients' names to clients.parquet. Call this before adding any event."""
        self._clients.name_clients(names)

    def add_epsilons(self, phase: str, round: int, epsilons: np.ndarray) -> None:
        """Adds the epsilon of every client to clients.parquet.

        Args:
            phase: The phase of the last round.
            round: The last round.
            epsilons: One per client [clients].
        """
        with self._writing(CLIENTS_FILE):
            self._clients.add_epsilons(phase, round, epsilons)

    def metrics_table(self) -> pa.Table:
        """Returns the metrics so far; see `RunArchive.metrics`."""
        return RunArchive(self.folder).metrics

    def _add_metrics(self, done: RoundDone, evaluated: Evaluated) -> None:
        row = metrics_row(done, evaluated)
        self._lines, self._last_evaluated = self._lines + 1, max(self._last_evaluated, done.round)
        with self._writing(METRICS_FILE):
            self._metrics.add(json.dumps(row, allow_nan=False, ensure_ascii=False))

    def _write_confusion(self) -> None:
        if self._confusion:
            self._write_small(CONFUSION_FILE, json.dumps(self._confusion))
            self._confusion = {}

    def _write_small(self, file: str, text: str) -> None:
        self._small[file] = text
        with self._writing(file), atomic_write(self.folder / file) as path:
            path.write_text(text, encoding="utf-8")

    @contextmanager
    def _writing(self, file: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(f"cannot write '{self.folder / file}': {error.strerror or error}") from error


def _without_clients(done: RoundDone) -> RoundDone:
    """The part of a round that metrics.jsonl needs: thousands of rounds may wait for an evaluation."""
    return replace(done, client_scalars=(), spent={}, left_out=())
