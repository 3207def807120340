"""Capabilities of clients' simulated devices, drawn from the seed or read once for a run from traces of real devices.

Traces are Parquet files: a column per quantity, or a row per client and interval of availability.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rayfl.config.participation import Between, Devices, Kinds, LogNormal, Sessions, Traced
from rayfl.data.formats.parquet import read_table
from rayfl.errors import DataError
from rayfl.files import check_regular
from rayfl.streams import stream


@dataclass(frozen=True)
class SessionTable:
    """Intervals of virtual time in which clients are available, sorted by client, then by start.

    Attributes:
        first: int64 [clients + 1], index of each client's first interval.
        begins: float64 [intervals], in virtual seconds.
        ends: float64 [intervals], in virtual seconds.
        repeat_s: Period in seconds after which the intervals repeat; None if they do not.
    """

    first: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    repeat_s: float | None = None

    def until(self, client: int, at: float) -> float | None:
        """Until when a client stays available from a virtual second on; None if it is not available then.

        An interval contains its start, not its end. One that ends when the next begins continues in it.
        """
        own = slice(self.first[client], self.first[client + 1])
        begins, ends = self.begins[own], self.ends[own]
        start = at if self.repeat_s is None else at % self.repeat_s
        place = int(np.searchsorted(begins, start, side="right")) - 1
        if place < 0 or ends[place] <= start:
            return None
        seconds_left = float(ends[place] - start)
        if ends[place] == self.repeat_s and begins[0] == 0:  # it continues when the intervals repeat
            seconds_left = math.inf if place == 0 else seconds_left + float(ends[0])
        return at + seconds_left

    def begin(self, client: int, at: float) -> float:
        """The first virtual second, from `at` on, in which a client is available; infinity if it never is again."""
        begins = self.begins[self.first[client] : self.first[client + 1]]
        if not len(begins):
            return math.inf
        if self.until(client, at) is not None:
            return at
        period = self.repeat_s or math.inf
        start = at % period
        place = int(np.searchsorted(begins, start, side="right"))
        if place == len(begins) and self.repeat_s is None:
            return math.inf
        again = at + (float(begins[place]) - start if place < len(begins) else period - start + float(begins[0]))
        for _ in range(4):  # it may be rounded down, to just before the interval
            if self.until(client, again) is None:
                again = math.nextafter(again, math.inf)
        return again


class Traces:
    """The trace files of a scenario, each read once.

    Attributes:
        files: Path and SHA-256 of the files that were read.

    Args:
        seed: The scenario's seed.
        num_clients: Number of clients.
    """

    def __init__(self, seed: int, num_clients: int) -> None:
        self._seed, self._num_clients = seed, num_clients
        self._content: dict[Path, bytes] = {}
        self.files: list[tuple[str, str]] = []

    def column(self, path: Path, column: str, key: str, most: float) -> np.ndarray:
        """Reads a column, float64 [clients], from each client's row, or from a row that each client draws.

        Args:
            path: The file.
            column: Its column.
            key: The scenario key, for errors.
            most: The largest allowed number: 1 for probabilities, which may be 0; other quantities must be above 0.

        Raises:
            DataError: As `build_profiles`.
        """
        schema = self._schema(path, key)
        by_client = "client" in schema.names
        table = self._table(path, key, {"client": pa.int64()} if by_client else {}, [column])
        values = table[column].to_numpy().astype(np.float64)
        rows = self._rows_of_clients(table["client"].to_numpy(), path, key) if by_client else self._drawn_rows(table)
        quantity: np.ndarray = values[rows]
        bad = ~((quantity >= 0) & (quantity <= most) & ((quantity > 0) | (most == 1)) & np.isfinite(quantity))
        if bad.any():
            allowed = "a probability, 0 to 1" if most == 1 else "a finite number above 0"
            raise DataError(
                f"{key}: {path}: column '{column}' has {quantity[bad][0]:g} in row {rows[bad][0]}; must be {allowed}"
            )
        return quantity

    def sessions(self, trace: Sessions) -> SessionTable:
        """When clients are available.

        Raises:
            DataError: As `build_profiles`.
        """
        path, key = Path(trace.sessions), "participation.availability"
        table = self._table(path, key, {"client": pa.int64()}, ["begins", "ends"])
        client, begins, ends = (table[name].to_numpy() for name in ("client", "begins", "ends"))
        begins, ends = begins.astype(np.float64), ends.astype(np.float64)
        last = math.inf if trace.repeat_s is None else trace.repeat_s
        bad = np.flatnonzero(~((begins >= 0) & (begins < ends) & (ends <= last)))
        if len(bad):
            until = "" if trace.repeat_s is None else f" <= repeat_s = {trace.repeat_s:g}"
            raise DataError(
                f"{key}: {path}: row {bad[0]} has begins = {begins[bad[0]]:g} and ends = {ends[bad[0]]:g}; "
                f"must be 0 <= begins < ends{until}"
            )
        known = (client >= 0) & (client < self._num_clients)
        if not known.any():
            raise DataError(f"{key}: {path}: column 'client' names none of the clients 0 to {self._num_clients - 1}")
        order = np.flatnonzero(known)[np.lexsort((begins[known], client[known]))]
        return _merged(client[order], begins[order], ends[order], self._num_clients, trace.repeat_s)

    def _rows_of_clients(self, client: np.ndarray, path: Path, key: str) -> np.ndarray:
        rows = np.full(self._num_clients, -1)
        known = np.flatnonzero((client >= 0) & (client < self._num_clients))
        order = np.argsort(client[known], kind="stable")
        again = order[1:][np.diff(client[known][order]) == 0]
        if len(again):
            raise DataError(f"{key}: {path}: column 'client' names client {client[known[again.min()]]} twice")
        rows[client[known]] = known
        if (rows < 0).any():
            missing = int(np.flatnonzero(rows < 0)[0])
            raise DataError(
                f"{key}: {path}: column 'client' does not name client {missing} of {self._num_clients}; add a row for "
                "every client, or remove the column to let clients draw their rows"
            )
        return rows

    def _drawn_rows(self, table: pa.Table) -> np.ndarray:
        return stream(self._seed, "device row").integers(len(table), size=self._num_clients)

    def _schema(self, path: Path, key: str) -> pa.Schema:
        """The file's schema; empty if it cannot be read, which `read_table` reports."""
        try:
            return pq.read_schema(io.BytesIO(self._bytes(path, key)))
        except (pa.ArrowException, OSError):
            return pa.schema([])

    def _table(self, path: Path, key: str, fixed: Mapping[str, pa.DataType], numbers: Sequence[str]) -> pa.Table:
        """Reads columns of fixed types and columns of any numeric type."""
        schema = self._schema(path, key)
        expected = {name: pa.float64() for name in numbers}
        for name in (name for name in numbers if name in schema.names):
            kind = schema.field(name).type
            if pa.types.is_integer(kind) or pa.types.is_floating(kind):
                expected[name] = kind
        try:
            return read_table(path, pa.schema({**fixed, **expected}), self._bytes(path, key))
        except DataError as error:
            raise DataError(f"{key}: {error}") from None

    def _bytes(self, path: Path, key: str) -> bytes:
        if path not in self._content:
            check_regular(path, f"{key}: {path}")
            try:
                self._content[path] = path.read_bytes()
            except OSError as error:
                raise DataError(f"{key}: {path}: cannot be read ({error.strerror or error})") from None
            self.files.append((str(path), hashlib.sha256(self._content[path]).hexdigest()))
        return self._content[path]


def _merged(
    client: np.ndarray, begins: np.ndarray, ends: np.ndarray, num_clients: int, repeat_s: float | None
) -> SessionTable:
    """Merges intervals that touch or overlap."""
    values, ranks = np.unique(ends, return_inverse=True)
    base = client * len(values)
    latest = values[np.maximum.accumulate(base + ranks) - base]  # of the client's intervals so far
    starts = np.flatnonzero(np.append(True, (client[1:] != client[:-1]) | (begins[1:] > latest[:-1])))
    first = np.searchsorted(client[starts], np.arange(num_clients + 1))
    return SessionTable(first, begins[starts], latest[np.append(starts[1:], len(client)) - 1], repeat_s)


@dataclass(frozen=True)
class DeviceProfiles:
    """Capabilities of clients' devices; quantities that take no time or draw no power are missing.

    Attributes:
        quantities: float64 [clients] by key of [participation]: speeds, bandwidths, watts and probabilities.
        sessions: When clients are available, if given as intervals.
        files: Path and SHA-256 of the traces that were read.
    """

    quantities: Mapping[str, np.ndarray]
    sessions: SessionTable | None = None
    files: Sequence[tuple[str, str]] = field(default=())

    @property
    def digests(self) -> list[str]:
        """SHA-256 digests of the traces that were read."""
        return [digest for _, digest in self.files]

    def summary(self) -> str:
        """A one-line summary."""
        words = []
        for key, values in self.quantities.items():
            least, median, most = np.quantile(values, (0, 0.5, 1))
            if (key == "dropout" and most == 0) or (key == "availability" and least == 1):
                continue
            words.append(f"{key} {median:.4g}" if least == most else f"{key} {least:.4g} to {most:.4g}")
        return ", ".join([*words, *(["sessions of availability"] if self.sessions else [])])

    def of(self, key: str, client: int) -> float | None:
        """A client's quantity; None if it is missing."""
        values = self.quantities.get(key)
        return None if values is None else float(values[client])


def build_profiles(devices: Devices, seed: int, num_clients: int) -> DeviceProfiles:
    """Draws or reads the capabilities of clients' devices.

    Args:
        devices: The scenario's [participation].
        seed: The scenario's seed.
        num_clients: Number of clients.

    Raises:
        DataError: A trace is missing, damaged, or does not cover these clients; names file and column.
    """
    traces, quantities = Traces(seed, num_clients), {}
    for key in Devices.model_fields:
        setting = getattr(devices, key)
        if setting is None or isinstance(setting, Sessions):
            continue
        if isinstance(setting, Traced):
            most = 1.0 if key in ("dropout", "availability") else math.inf
            quantities[key] = traces.column(Path(setting.file), setting.column or key, f"participation.{key}", most)
        else:
            quantities[key] = _drawn(setting, stream(seed, f"device {key}"), num_clients)
    sessions = traces.sessions(devices.availability) if isinstance(devices.availability, Sessions) else None
    return DeviceProfiles(quantities, sessions, traces.files)


def _drawn(distribution: Any, rng: np.random.Generator, num_clients: int) -> np.ndarray:
    match distribution:
        case Between(uniform=(least, most)):
            return rng.uniform(least, most, num_clients)
        case LogNormal(lognormal=(median, sigma)):
            return median * np.exp(sigma * rng.standard_normal(num_clients))
        case Kinds(kinds=numbers):
            return np.array(numbers)[rng.integers(len(numbers), size=num_clients)]
        case number:
            return np.full(num_clients, float(number))
