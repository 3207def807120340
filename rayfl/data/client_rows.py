"""Samples that a `ClientSource` loads client by client, in the process that trains or evaluates the client.

Every process has the source itself; processes compare its sizes and one client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rayfl.data.checks import array_from, check_values, labels_from
from rayfl.data.client_source import ClientSource
from rayfl.data.indexed_rows import NumberedRows, numbers_at
from rayfl.data.inputs import AsArray
from rayfl.data.named_functions import SourceCall
from rayfl.data.tried import Tried
from rayfl.errors import DataError, RayflError, ScenarioError
from rayfl.streams import stream
from rayfl.wording import report_as_theirs

KEPT_BYTES = 2**26
"""Of the clients that a process has loaded last; it keeps the last one whatever its size."""

TRIED_CLIENTS = 4
"""Clients, evenly spaced, that the process which starts a run loads, twice each."""

Pair = tuple[np.ndarray, np.ndarray]
"""The inputs and the labels of a client."""


@dataclass(frozen=True)
class ClientSet:
    """What the process that starts a run knows of a set whose clients are loaded by others.

    Attributes:
        offsets: [clients + 1] int64, where the samples of each client begin.
        kinds: Shape of a sample and dtype, of inputs and of labels.
        labels: The labels of the clients that were tried.
        compared: The smallest of them, which every process compares.
        tried: Its samples.
    """

    offsets: np.ndarray
    kinds: tuple[tuple[tuple[int, ...], np.dtype], tuple[tuple[int, ...], np.dtype]]
    labels: np.ndarray
    compared: int
    tried: Tried

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample."""
        return sum(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in self.kinds)


class LoadedClients:
    """The sources of clients, by set, and the clients that this process has loaded last.

    A process that receives it repeats the call of the source, so no samples are sent, and a source need not be
    picklable.

    Args:
        call: The call that returned the sources.
        sources: The sources that it returned.
        seed: The seed of the data.

    Attributes:
        sets: What is known of each set.
        num_classes: The number of classes that a source states, or that is known once all sets are.

    Raises:
        DataError: A source does not return what `ClientSource` says.
    """

    def __init__(self, call: SourceCall, sources: Mapping[str, ClientSource], seed: int) -> None:
        self._call, self._seed, self._sources = call, seed, dict(sources)
        self._kept: OrderedDict[tuple[str, int], Pair] = OrderedDict()
        self._kept_bytes = 0
        self.sets: dict[str, ClientSet] = {}
        stated = [self._stated_classes(part, source) for part, source in sources.items()]
        self.num_classes: int | None = max((one for one in stated if one is not None), default=None)
        for part in sources:
            self._try(part)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_sources": {}, "_kept": OrderedDict(), "_kept_bytes": 0}

    @property
    def name(self) -> str:
        """The source, for messages."""
        return f"data.name: '{self._call.name}'"

    def open(self) -> None:
        """Repeats the call of the source, unless this process has its sources already.

        Raises:
            DataError: The source has other clients here than where the run started.
        """
        if self._sources:
            return
        sources = client_sources(self._call())
        for part, known in self.sets.items():
            if part not in sources or not np.array_equal(self._sizes(part, sources[part]), np.diff(known.offsets)):
                raise self._differs(f"{part}: sizes()")
        self._sources = sources
        for part, known in self.sets.items():
            x, y = self.client(part, known.compared)
            if not known.tried.matches(Tried.of([{"": x}], [y])):
                raise self._differs(f"{part}: client {known.compared}: load()")

    def client(self, part: str, client: int) -> Pair:
        """The samples of a client; do not write to them."""
        key = part, client
        if key not in self._kept:
            self.open()
            size, size_bytes = self._size(*key)
            while self._kept and self._kept_bytes + size_bytes > KEPT_BYTES:
                self._kept_bytes -= self._size(*self._kept.popitem(last=False)[0])[1]
            self._kept[key] = self._loaded(part, client, size)
            self._kept_bytes += size_bytes
        self._kept.move_to_end(key)
        return self._kept[key]

    def clients(self, part: str) -> Iterator[Pair]:
        """The samples of every client of a set that has any, in order."""
        for client in np.flatnonzero(np.diff(self.sets[part].offsets)).tolist():
            yield self._loaded(part, client, self._size(part, client)[0])

    def _size(self, part: str, client: int) -> tuple[int, int]:
        """Number of a client's samples, and their bytes."""
        known = self.sets[part]
        size = int(known.offsets[client + 1] - known.offsets[client])
        return size, size * known.row_bytes

    def _try(self, part: str) -> None:
        sizes = self._sizes(part, self._sources[part])
        held = np.flatnonzero(sizes)
        tried = held[np.unique(np.linspace(0, len(held) - 1, TRIED_CLIENTS).astype(np.int64))].tolist()
        labels = []
        for client in tried:
            x, y = self._loaded(part, client, int(sizes[client]))
            again = self._loaded(part, client, int(sizes[client]))
            if not (np.array_equal(x, again[0]) and np.array_equal(y, again[1])):
                raise DataError(
                    f"{self.name}: {part}: client {client}: load() returned other values the second time; draw from "
                    "the generator that it gets, which is the same each time"
                )
            labels.append(y)
            if part not in self.sets or sizes[client] < sizes[self.sets[part].compared]:
                offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
                kinds = (x.shape[1:], x.dtype), (y.shape[1:], y.dtype)
                self.sets[part] = ClientSet(offsets, kinds, y, client, Tried.of([{"": x}], [y]))
        self.sets[part] = replace(self.sets[part], labels=np.concatenate(labels))

    def _stated_classes(self, part: str, source: ClientSource) -> int | None:
        where = f"{self.name}: {part}"
        stated = _theirs(lambda: getattr(source, "num_classes", None), where)
        if stated is None:
            return None
        if not isinstance(stated, int | np.integer) or stated < 1:
            raise DataError(f"{where}: the source's num_classes is {stated!r}; state a number of classes above 0")
        return int(stated)

    def _sizes(self, part: str, source: ClientSource) -> np.ndarray:
        where = f"{self.name}: {part}"
        sizes = array_from(_theirs(source.sizes, where), f"{where}: the values of sizes()")
        if sizes.ndim != 1 or not sizes.size or sizes.dtype.kind not in "ui" or sizes.min() < 0 or not sizes.any():
            raise DataError(
                f"{where}: sizes() returned {sizes.dtype}{list(sizes.shape)}; return a number for each client"
            )
        return sizes

    def _loaded(self, part: str, client: int, size: int) -> Pair:
        what, source = f"{self.name}: {part}: client {client}", self._sources[part]
        pair = _theirs(lambda: source.load(client, stream(self._seed, f"client {part}", client)), what)
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise DataError(f"{what}: load() returned an object of type {type(pair).__name__}; return (x, y)")
        x, y = array_from(pair[0], f"{what}: inputs"), labels_from(pair[1], f"{what}: labels")
        if any(not one.ndim or len(one) != size for one in (x, y)):
            shapes = " and ".join(f"{one.dtype}{list(one.shape)}" for one in (x, y))
            raise DataError(f"{what}: load() returned {shapes}, but sizes() says {size} samples")
        known = self.sets.get(part)
        for one, (shape, dtype) in zip((x, y), known.kinds if known else (), strict=False):
            if (one.shape[1:], one.dtype) != (shape, dtype):
                raise DataError(
                    f"{what}: load() returned {one.dtype}{list(one.shape[1:])} a sample, but {dtype}{list(shape)} for "
                    "other clients"
                )
        check_values(x, f"{what}: inputs")
        check_values(y, f"{what}: labels")
        if self.num_classes is not None and y.ndim == 1 and not 0 <= y.min() <= y.max() < self.num_classes:
            raise DataError(
                f"{what}: labels run from {y.min()} to {y.max()}, but {self.num_classes} classes were known before the "
                "run; state their number as the source's attribute num_classes"
            )
        return x, y

    def _differs(self, what: str) -> DataError:
        return DataError(
            f"{self.name}: {what} returns something else here than where the run started; every worker process calls "
            "the source again, so make it return the same on every machine"
        )


@dataclass(frozen=True)
class ClientRows(NumberedRows, AsArray):
    """Inputs or labels of clients with the interface of an array, loaded when they are accessed.

    Attributes:
        clients: The clients.
        part: The set.
        place: 0 for inputs, 1 for labels.
        rows: Numbers of the samples, counted through all clients; a range if they are consecutive.
    """

    clients: LoadedClients
    part: str
    place: int
    rows: range | np.ndarray

    @property
    def known(self) -> ClientSet:
        """What is known of the set."""
        return self.clients.sets[self.part]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.known.kinds[self.place][0]

    @property
    def dtype(self) -> np.dtype:
        return self.known.kinds[self.place][1]

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """Copies of some rows: [rows, ...]."""
        numbers, offsets = numbers_at(self.rows, rows), self.known.offsets
        gathered = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        owner = np.searchsorted(offsets, numbers, side="right") - 1
        by_owner = np.argsort(owner, kind="stable")
        for places in np.split(by_owner, np.flatnonzero(np.diff(owner[by_owner])) + 1):
            if len(places):
                client = int(owner[places[0]])
                values = self.clients.client(self.part, client)[self.place]
                gathered[places] = values[numbers[places] - offsets[client]]
        return gathered

    def reopen(self) -> None:
        self.clients.open()


def client_sources(loaded: Any) -> dict[str, ClientSource]:
    """The client sources in the result of a source of data, by set."""
    parts = loaded.items() if isinstance(loaded, Mapping) else ()
    return {str(part): one for part, one in parts if isinstance(one, ClientSource)}


def known_labels(y: Any) -> np.ndarray:
    """Labels that are known before the run: all, or those of the few clients that were tried."""
    labels: np.ndarray = y.known.labels if isinstance(y, ClientRows) else y
    return labels


def all_labels(y: Any, what: str) -> np.ndarray:
    """The labels of a set.

    Args:
        y: They.
        what: The key that needs all of them, for the message.

    Raises:
        ScenarioError: Hosts load them with the inputs of each client.
    """
    if isinstance(y, ClientRows):
        raise ScenarioError(
            f"{what} needs the samples of all clients at once, but {y.clients.name} loads each where it is trained; "
            "leave it out, or write the data to disk with `rayfl data prepare`"
        )
    labels: np.ndarray = y
    return labels


def _theirs(call: Any, where: str) -> Any:
    try:
        return call()
    except RayflError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise DataError(report_as_theirs(error, where)) from None
