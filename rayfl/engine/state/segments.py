"""The states of many clients in few files: segments of about 64 MB, and an index of 32 bytes a state.

A snapshot writes only the states that changed since the last one, into new segments. A segment of which less than half
is still in use is left behind, and what it holds is written anew; so are small segments once there are many.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np

from rayfl.engine.state.committed_rounds import KEPT
from rayfl.engine.state.state_store import DamagedStateError, StateStore, Stored
from rayfl.local.state import Scope

SEGMENT_BYTES = 64 * 10**6
"""Size from which a segment is written and another one begins."""

SMALL_SEGMENTS = 8
"""Number of segments less than half as large that an index may name, before they are merged."""

STATE = np.dtype([("client", "<i8"), ("scope", "<i4"), ("round", "<i4")])
"""A state that a client keeps: its number, the position of the scope in `KEPT`, and the round that left it."""

_ROW = np.dtype([*STATE.descr, ("offset", "<i8"), ("segment", "<i4"), ("kind", "<i4")])

Arrays = Mapping[str, np.ndarray]

T = TypeVar("T")

_Kind = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Name, type and shape of each array of a state, in the order in which their bytes follow each other."""


@dataclass(frozen=True)
class StoredStates:
    """A host's part of a snapshot's manifest.

    Attributes:
        index: Where each state is.
        segments: What the index counts.
    """

    index: Stored
    segments: Sequence[Stored]


WrittenStates = tuple[Sequence[StoredStates], np.ndarray]
"""What a host has written for a snapshot, nothing if its clients keep no states; and which states, as `states_of`."""


def states_of(rounds: Mapping[Scope, Mapping[int, int]]) -> np.ndarray:
    """`STATE` [states] of clients' rounds by scope, in the order of clients, then of scopes."""
    parts = [np.empty(len(rounds[scope]), STATE) for scope in KEPT]
    for number, (scope, part) in enumerate(zip(KEPT, parts, strict=True)):
        part["client"] = np.fromiter(rounds[scope].keys(), np.int64, len(part))
        part["round"] = np.fromiter(rounds[scope].values(), np.int64, len(part))
        part["scope"] = number
    return in_order(np.concatenate(parts))


def in_order(states: np.ndarray) -> np.ndarray:
    """States, or rows of an index, in the order of clients, then of scopes."""
    ordered: np.ndarray = states[np.argsort(_keys(states), kind="stable")]
    return ordered


class StateSegments:
    """Where a store holds the states of a host's clients, as of the last snapshot that was written or restored."""

    def __init__(self) -> None:
        # with the bytes of each segment that were in use when it was written or restored
        self._rows, self._kinds = np.empty(0, _ROW), list[_Kind]()
        self._segments, self._used = list[Stored](), dict[Stored, int]()

    def write(self, states: np.ndarray, arrays_of: Callable[[int, Scope], Arrays], store: StateStore) -> StoredStates:
        """Writes the states that changed, and the index of all.

        Args:
            states: `STATE` [states], from `states_of`.
            arrays_of: Returns the arrays of a client's state.
            store: Where the states before are.
        """
        rows = self._known(states, store)
        writer = _Writer(rows, self._kinds, self._segments, store)
        changed = np.flatnonzero(rows["segment"] < 0)
        for place, client, scope in zip(changed.tolist(), *_columns(rows[changed], "client", "scope"), strict=True):
            writer.add(place, arrays_of(client, KEPT[scope]))
        writer.flush()
        self._keep(rows, writer.kinds, writer.segments)
        index = store.write({"rows": self._rows.view(np.uint8), "kinds": _encoded(self._kinds)})
        return StoredStates(index, self._segments)

    def read(
        self, parts: Iterable[StoredStates], own: Callable[[np.ndarray], np.ndarray], store: StateStore
    ) -> Iterator[tuple[int, Scope, int, Arrays]]:
        """Continues from a snapshot, and yields its states: client, scope, round and arrays.

        Args:
            parts: The parts of all hosts.
            own: Returns which of some clients, int64 [clients], belong to this host.
            store: Where the states are.

        Raises:
            DamagedStateError: An index or a segment is missing or damaged.
        """
        taken, kinds, segments = [np.empty(0, _ROW)], dict[_Kind, int](), dict[Stored, int]()
        for part in parts:
            rows, its_kinds = _read(part, store)
            rows = rows[own(rows["client"])]
            rows["kind"] = _renumbered(rows["kind"], its_kinds, kinds)
            rows["segment"] = _renumbered(rows["segment"], part.segments, segments)
            taken.append(rows)
        rows = np.concatenate(taken)
        self._keep(in_order(rows), list(kinds), list(segments))
        for number, segment in enumerate(self._segments):
            content = store.read(segment)["states"]
            rows = self._rows[self._rows["segment"] == number]
            if (rows["offset"] < 0).any() or (rows["offset"] + self._sizes()[rows["kind"]] > len(content)).any():
                raise DamagedStateError(f"{store.name(segment.place)} is shorter than the index of its states says")
            columns = _columns(rows, "client", "scope", "round", "offset", "kind")
            for client, scope, round, offset, kind in zip(*columns, strict=True):
                yield client, KEPT[scope], round, _cut(content, offset, self._kinds[kind])

    def _keep(self, rows: np.ndarray, kinds: Sequence[_Kind], segments: Sequence[Stored]) -> None:
        """Keeps the rows, and the kinds and segments that they use."""
        used_kinds, rows["kind"] = np.unique(rows["kind"], return_inverse=True)
        used_segments, rows["segment"] = np.unique(rows["segment"], return_inverse=True)
        self._rows, self._kinds = rows, [kinds[number] for number in used_kinds]
        self._segments = [segments[number] for number in used_segments]
        now = zip(self._segments, self._bytes_of(rows).tolist(), strict=True)
        self._used = {segment: self._used.get(segment, used) for segment, used in now}

    def _bytes_of(self, rows: np.ndarray) -> np.ndarray:
        """Bytes of each segment that rows use."""
        used = np.bincount(rows["segment"], self._sizes()[rows["kind"]], len(self._segments))
        return used.astype(np.int64)

    def _sizes(self) -> np.ndarray:
        """Bytes of a state of each kind."""
        sizes = [sum(np.dtype(dtype).itemsize * prod(shape) for _, dtype, shape in kind) for kind in self._kinds]
        return np.array(sizes, np.int64)

    def _known(self, states: np.ndarray, store: StateStore) -> np.ndarray:
        """The rows of the states; those to be written have segment -1."""
        rows = np.zeros(len(states), _ROW)
        for name in STATE.names or ():
            rows[name] = states[name]
        rows["segment"] = -1
        if not len(self._rows):
            return rows
        places = np.searchsorted(_keys(self._rows), _keys(rows)).clip(max=len(self._rows) - 1)
        before = self._rows[places]
        same = (_keys(before) == _keys(rows)) & (before["round"] == rows["round"])
        used, held = self._bytes_of(before[same]), store.held(self._segments)
        missing = np.array([segment.place not in held for segment in self._segments], bool)
        sparse = missing | (2 * used < np.array([*self._used.values()]))
        small = ~sparse & (2 * used < SEGMENT_BYTES)
        if small.sum() > SMALL_SEGMENTS:
            sparse |= small
        same &= ~sparse[before["segment"]]
        rows[same] = before[same]
        return rows


class _Writer:
    """Fills segments, and notes in rows where each state is."""

    def __init__(self, rows: np.ndarray, kinds: Sequence[_Kind], segments: Sequence[Stored], store: StateStore) -> None:
        self._rows, self._store = rows, store
        self.kinds, self.segments = list(kinds), list(segments)
        self._numbers = {kind: number for number, kind in enumerate(kinds)}
        self._content, self._placed = bytearray(), list[tuple[int, int, int]]()

    def add(self, place: int, arrays: Arrays) -> None:
        """Adds the state of a row."""
        names = sorted(arrays)
        kind = tuple([(name, arrays[name].dtype.str, arrays[name].shape) for name in names])
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        self._placed.append((place, len(self._content), number))
        for name in names:
            self._content += arrays[name].tobytes()
        if len(self._content) >= SEGMENT_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the current segment."""
        if not self._placed:
            return
        places, offsets, kinds = np.array(self._placed, np.int64).T
        self._rows["offset"][places], self._rows["kind"][places] = offsets, kinds
        segment = self._store.write({"states": np.frombuffer(self._content, np.uint8)})
        if segment not in self.segments:  # equal states may fill several segments with the same bytes
            self.segments.append(segment)
        self._rows["segment"][places] = self.segments.index(segment)
        self._content, self._placed = bytearray(), []


def stored_states(parts: Iterable[StoredStates], store: StateStore) -> np.ndarray:
    """`STATE` [states] of all parts of a snapshot.

    Raises:
        DamagedStateError: An index is missing or damaged.
    """
    indexes = [_read(part, store)[0] for part in parts]
    rows = np.concatenate([np.empty(0, _ROW), *indexes])
    states = np.empty(len(rows), STATE)
    for name in STATE.names or ():
        states[name] = rows[name]
    return states


def _read(part: StoredStates, store: StateStore) -> tuple[np.ndarray, list[_Kind]]:
    """Reads an index."""
    damaged = f"{store.name(part.index.place)} is damaged"
    content = store.read(part.index)
    try:
        rows = content["rows"].view(_ROW)
        kinds = _decoded(content["kinds"])
    except (KeyError, ValueError, TypeError) as error:
        raise DamagedStateError(f"{damaged}: {error}") from None
    for name, most in (("scope", len(KEPT)), ("segment", len(part.segments)), ("kind", len(kinds))):
        if len(rows) and not 0 <= rows[name].min() <= rows[name].max() < most:
            raise DamagedStateError(f"{damaged}: it counts {most} for '{name}', and names others")
    return rows, kinds


def _cut(content: np.ndarray, offset: int, kind: _Kind) -> Arrays:
    """Copies the arrays of a state from a segment."""
    arrays = {}
    for name, dtype, shape in kind:
        array: np.ndarray = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = content[offset : offset + array.nbytes]
        arrays[name] = array
        offset += array.nbytes
    return arrays


def _renumbered(places: np.ndarray, values: Sequence[T], numbers: dict[T, int]) -> np.ndarray:
    """The numbers of values by their places; those without one get the next."""
    renumbered: np.ndarray = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int32)[places]
    return renumbered


def _columns(rows: np.ndarray, *names: str) -> list[list[int]]:
    return [rows[name].tolist() for name in names]


def _keys(rows: np.ndarray) -> np.ndarray:
    keys: np.ndarray = rows["client"] * len(KEPT) + rows["scope"]
    return keys


def _encoded(kinds: Sequence[_Kind]) -> np.ndarray:
    return np.frombuffer(json.dumps(kinds).encode(), np.uint8)


def _decoded(content: np.ndarray) -> list[_Kind]:
    kinds = [
        tuple((str(name), np.dtype(str(dtype)), tuple(map(int, shape))) for name, dtype, shape in kind)
        for kind in json.loads(content.tobytes())
    ]
    for name, dtype, shape in (array for kind in kinds for array in kind):
        if dtype.kind not in "biufc" or min(shape, default=0) < 0:
            raise ValueError(f"'{name}' is no array of numbers")
    return [tuple((name, dtype.str, shape) for name, dtype, shape in kind) for kind in kinds]
