"""clients.parquet: scores and reported scalars of single clients."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rayfl.data.dataset import ClientNames
from rayfl.engine.columns import CLIENTS, OWNER, joined
from rayfl.engine.events import Evaluated, RoundDone
from rayfl.errors import CheckpointError, RayflError
from rayfl.files import atomic_write, inside, reading
from rayfl.runs.folder import CLIENT_PARTS

ROWS_HELD = 50_000
"""Number of rows that are collected before they are written together."""


class ClientRecords:
    """Collects rows for single clients and writes them as one Parquet file.

    A row is either a client's score in an evaluated round or what it reported in its client update; the columns of the
    other kind are null. Every scalar has its own column, null where it was not reported. A Parquet file has one set of
    columns, so a name that first appears late starts another part, and `close` merges the parts.

    If the data names its clients, `owner` has their names, dictionary-encoded: a name takes a few bytes per row.

    Args:
        path: The file; `close` creates it, if there were any rows.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stem = f".{path.name}.{uuid.uuid4().hex}"
        self._rows: list[dict[str, object]] = []
        self._schema = CLIENTS
        self._kinds: dict[str, str] = {}
        self._parts: list[Path] = []
        self._closed = False
        self._added = 0
        self._names: ClientNames | None = None

    def name_clients(self, names: ClientNames) -> None:
        """Adds the column `owner`. Call this before adding or restoring any row."""
        self._names = names
        self._schema = self._schema.append(OWNER)

    def state(self) -> dict[str, Any]:
        """The state to resume from, as plain data. All rows so far are on disk afterwards."""
        self._write()
        return {"rows": self._added, "kinds": dict(self._kinds), "parts": [part.name for part in self._parts]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a state that `state` returned, whether or not the file was completed since then.

        Raises:
            ResourceError: Rows that the state counts are missing or damaged.
        """
        self._added, self._kinds = state["rows"], dict(state["kinds"])
        for name in self._kinds:
            self._schema = self._schema.append(pa.field(name, pa.float64()))
        before = [self._part(name) for name in state["parts"]]
        for file in self._path.parent.glob(f".{self._path.name}.*"):
            if file not in before:  # a run that was killed wrote it later
                file.unlink()
        if all(part.exists() for part in before):
            if (rows := sum(_rows_of(part) for part in before)) != self._added:
                raise CheckpointError(
                    f"the parts of '{self._path}' have {rows} of the {self._added} rows that the run had written"
                )
            self._parts = before
        elif self._path.exists():
            part = self._next_part()
            with reading(self._path, "as Parquet", CheckpointError):
                self._take_rows(part)
            self._parts = [part]
        else:
            raise CheckpointError(f"'{self._path}' is missing, with {self._added} rows that the run had written")

    def add_scores(self, evaluated: Evaluated) -> None:
        """Adds a row for every client that was scored.

        Raises:
            RayflError: A scalar has the name of another column.
        """
        for score in evaluated.clients:
            fixed = self._fixed(evaluated.phase, evaluated.round, score.client)
            fixed |= {"set": score.set, "samples": score.samples}
            self._add(joined(fixed, score.scores), score.scores, "score")
        self._write_many()

    def add_reports(self, done: RoundDone) -> None:
        """Adds a row for every client that reported scalars.

        Raises:
            RayflError: A scalar has the name of another column.
        """
        for reported in done.client_scalars:
            row = self._fixed(done.phase, done.round, reported.client)
            self._add(joined(row, reported.values), reported.values, "scalar")
        self._write_many()

    def add_epsilons(self, phase: str, round: int, epsilons: np.ndarray) -> None:
        """Adds a row for every client, with its epsilon after the last round of the run.

        Column `epsilon` comes from the accountant, for each client. With `accountant = "prv"` and more distinct
        histories than `rayfl.privacy.samples.accounting.EXACT_AT_ONCE` it is the RDP bound, which is a little
        larger; privacy.json says which. It is infinite for clients whose updates had no noise.

        Raises:
            RayflError: A score has this name.
        """
        for client, epsilon in enumerate(epsilons):
            row = self._fixed(phase, round, client)
            self._add(joined(row, {"epsilon": epsilon}), ("epsilon",), "scalar")
        self._write_many()

    def close(self) -> None:
        """Writes the remaining rows and completes the file; does nothing the second time.

        If that fails, the parts stay for a run that is resumed.
        """
        if self._closed:
            return
        self._closed = True
        self._write()
        if self._parts:
            with atomic_write(self._path) as path:
                self._put_together(path)
        for part in self._parts:
            part.unlink(missing_ok=True)
        self._parts = []

    def abandon(self) -> None:
        """Drops the remaining rows; the parts stay."""
        self._closed = True

    def _fixed(self, phase: str, round: int, client: int) -> dict[str, object]:
        row: dict[str, object] = dict.fromkeys(CLIENTS.names)
        row |= {"phase": phase, "round": round, "client": client}
        if self._names is not None:
            row[OWNER.name] = self._names[client] if client < len(self._names) else None  # pools have no owner
        return row

    def _add(self, row: dict[str, object], names: Iterable[str], kind: Literal["score", "scalar"]) -> None:
        for name in names:
            if self._kinds.setdefault(name, kind) != kind:
                raise RayflError(f"reported scalar '{name}': the records have a score of this name; choose another")
        self._rows.append(row)
        self._added += 1

    def _write_many(self) -> None:
        if len(self._rows) >= ROWS_HELD:
            self._write()

    def _write(self) -> None:
        """Writes the collected rows as a part; keeps them if it cannot be written."""
        if not self._rows:
            return
        new = [name for name in dict.fromkeys(itertools.chain(*self._rows)) if name not in self._schema.names]
        for name in new:
            self._schema = self._schema.append(pa.field(name, pa.float64()))
        part = self._next_part()
        try:
            pq.write_table(pa.Table.from_pylist(self._rows, schema=self._schema), part)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        self._parts.append(part)
        self._rows = []

    def _part(self, name: object) -> Path:
        """The path of a part that a checkpoint names; parts are removed in the end, so it must be one."""
        path = inside(self._path.parent, name, f"the checkpoints beside '{self._path}'", CheckpointError)
        if path.parent != self._path.parent or not path.match(CLIENT_PARTS):
            raise CheckpointError(f"the checkpoints beside '{self._path}' name '{path.name}', which is no part of it")
        return path

    def _next_part(self) -> Path:
        return self._path.with_name(f"{self._stem}.{len(self._parts)}")

    def _take_rows(self, part: Path) -> None:
        """Copies the rows of the completed file, except those added after the state was taken."""
        remaining = self._added
        with pq.ParquetFile(self._path) as file, pq.ParquetWriter(part, self._schema) as writer:
            for number in range(file.num_row_groups):
                group = file.read_row_group(number).select(self._schema.names).slice(0, remaining)
                writer.write_table(group)
                remaining -= len(group)
        if remaining:
            raise CheckpointError(f"'{self._path}' lacks {remaining} of {self._added} rows that the run had written")

    def _put_together(self, path: Path) -> None:
        if len(self._parts) == 1:
            self._parts[0].replace(path)
            return
        with pq.ParquetWriter(path, self._schema) as whole:
            for part in self._parts:
                with pq.ParquetFile(part) as file:
                    for number in range(file.num_row_groups):
                        group = file.read_row_group(number)
                        missing = [field for field in self._schema if field.name not in group.schema.names]
                        for field in missing:
                            group = group.append_column(field, pa.nulls(len(group), field.type))
                        whole.write_table(group)


def _rows_of(part: Path) -> int:
    """The number of rows of a part; reads all of it, so that damage is found before training and not after it.

    Raises:
        CheckpointError: It is damaged.
    """
    with reading(part, "as Parquet", CheckpointError), pq.ParquetFile(part) as file:
        return sum(len(file.read_row_group(number)) for number in range(file.num_row_groups))
