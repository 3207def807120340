"""Stores for the states of snapshots: arrays under their digest, written by the process that holds them.

In memory, in a folder, or at a URI for hosts that share no file system. A worker's part of a snapshot is written in a
background thread while updates and rounds continue.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import safetensors.numpy

from rayfl.errors import RayflError, ResourceError
from rayfl.files import atomic_write, inside, reading
from rayfl.remote_folder import RemoteFolder

CONSTANTS = "constants"
"""Name of the array that holds a phase's constants."""


class DamagedStateError(RayflError):
    """A state is missing or was changed."""


@dataclass(frozen=True)
class Stored:
    """Arrays in a store.

    Attributes:
        digest: SHA-256 of the written bytes, in hexadecimal digits.
        place: Path within the store.
    """

    digest: str
    place: str


class StateStore(ABC):
    """Keeps named arrays: equal contents only once, and never modified."""

    def write(self, arrays: Mapping[str, np.ndarray]) -> Stored:
        """Keeps a copy of some arrays.

        Args:
            arrays: The arrays by name.

        Returns:
            Reference for `read`.
        """
        content = safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})
        digest = hashlib.sha256(content).hexdigest()
        stored = Stored(digest, f"{digest[:2]}/{digest}.safetensors")
        self._put(stored.place, content)
        return stored

    def read(self, stored: Stored) -> dict[str, np.ndarray]:
        """Returns stored arrays by name, as copies.

        Raises:
            DamagedStateError: They are missing or were changed.
        """
        content = self._take(stored.place)
        if hashlib.sha256(content).hexdigest() != stored.digest:
            raise DamagedStateError(f"{self.name(stored.place)} is damaged: its digest differs from that of the state")
        with reading(self.name(stored.place), "as safetensors", DamagedStateError):
            return {name: np.array(array) for name, array in safetensors.numpy.load(content).items()}

    @abstractmethod
    def held(self, stored: Collection[Stored]) -> set[str]:
        """Returns the places of those that exist in the store, whether damaged or not."""

    @abstractmethod
    def name(self, place: str) -> str:
        """Returns the name of a place for messages."""

    @abstractmethod
    def places(self) -> Iterator[str]:
        """Yields the places of everything stored."""

    @abstractmethod
    def remove(self, places: Collection[str]) -> None:
        """Removes contents by place, ignoring places that do not exist.

        Raises:
            ResourceError: One cannot be removed.
        """

    @abstractmethod
    def _put(self, place: str, content: bytes) -> None: ...

    @abstractmethod
    def _take(self, place: str) -> bytes: ...


class FolderStore(StateStore):
    """Keeps arrays as safetensors files in a folder, which every host must reach under the same path.

    Files that are being written are at the top of the folder, where those of killed writers are found at once.

    Args:
        folder: The folder; created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def held(self, stored: Collection[Stored]) -> set[str]:
        return {one.place for one in stored if self._path(one.place, DamagedStateError).is_file()}

    def name(self, place: str) -> str:
        return str(self._folder / place)

    def places(self) -> Iterator[str]:
        return (path.relative_to(self._folder).as_posix() for path in self._folder.glob("*/*.safetensors"))

    def remove(self, places: Collection[str]) -> None:
        for place in places:
            path = self._path(place, ResourceError)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise ResourceError(f"cannot remove the state {path}: {error.strerror}") from None

    def _put(self, place: str, content: bytes) -> None:
        path = self._folder / place
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, self._folder) as temporary:
                temporary.write_bytes(content)
        except OSError as error:
            raise RayflError(f"cannot write the state {path}: {error}") from None

    def _take(self, place: str) -> bytes:
        path = self._path(place, DamagedStateError)
        try:
            return path.read_bytes()
        except OSError as error:
            raise DamagedStateError(
                f"cannot read the state {path}: {error}; was the snapshot moved without it?"
            ) from None

    def _path(self, place: str, error: type[RayflError]) -> Path:
        return inside(self._folder, place, f"the states in {self._folder}", error)


class RemoteStore(StateStore):
    """Keeps arrays as safetensors files in a remote folder, where hosts and server write directly.

    An interrupted upload is never taken for a state, since reading checks the digest.

    Args:
        folder: The remote folder.
    """

    def __init__(self, folder: RemoteFolder) -> None:
        self._folder = folder

    def held(self, stored: Collection[Stored]) -> set[str]:
        # one listing of an object store returns a thousand files
        return {one.place for one in stored}.intersection(self.places()) if stored else set()

    def name(self, place: str) -> str:
        return f"'{place}' in '{self._folder}'"

    def places(self) -> Iterator[str]:
        return (file.path for file in self._folder.files())

    def remove(self, places: Collection[str]) -> None:
        self._folder.remove(places)

    def _put(self, place: str, content: bytes) -> None:
        self._folder.write(place, content)

    def _take(self, place: str) -> bytes:
        content = self._folder.read(place)
        if content is None:
            raise DamagedStateError(f"the state {self.name(place)} is missing; was the snapshot moved without it?")
        return content


class StoredConstants:
    """The constants of the latest phases in a store, each written and read once.

    Args:
        share: Puts what was read where other processes can read it; returns it as an equal array.
    """

    def __init__(self, share: Callable[[np.ndarray], np.ndarray] = lambda constants: constants) -> None:
        self._share = share
        self._latest: deque[tuple[np.ndarray, Stored]] = deque(maxlen=2)  # a snapshot may have models of two phases

    def write(self, store: StateStore, constants: np.ndarray | None) -> Stored | None:
        """Returns where constants are; writes them if necessary."""
        if constants is None:
            return None
        for array, stored in self._latest:
            if array.ctypes.data == constants.ctypes.data:
                return stored
        self._latest.append((constants, store.write({CONSTANTS: constants})))
        return self._latest[-1][1]

    def read(self, store: StateStore, stored: Stored | None) -> np.ndarray | None:
        """Returns constants that were written, shared with the hosts."""
        if stored is None:
            return None
        for array, place in self._latest:
            if place == stored:
                return array
        self._latest.append((self._share(store.read(stored)[CONSTANTS]), stored))
        return self._latest[-1][0]


T = TypeVar("T")


class SnapshotWriter(Generic[T]):
    """Writes one snapshot at a time, identified by its round."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rayfl-snapshot")
        self._under_way: tuple[int, Future[T]] | None = None

    def begin(self, round: int, write: Callable[[], T]) -> None:
        """Starts writing.

        Args:
            round: The snapshot's committed round.
            write: Writes the captured state, which nothing may modify any more, and returns its manifest.
        """
        self._under_way = round, self._thread.submit(write)

    def written(self, round: int, wait: bool) -> T | None:
        """Returns the manifest; None while it is being written.

        Args:
            round: The round given to `begin`.
            wait: Whether to wait for it.

        Raises:
            RayflError: Writing failed, or this worker was restarted since.
        """
        if self._under_way is None or self._under_way[0] != round:
            raise RayflError(f"the snapshot of round {round} is lost: a worker that was writing it was restarted")
        future = self._under_way[1]
        return future.result() if wait or future.done() else None
