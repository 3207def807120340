"""Copies of the files of prepared folders on a node's own disk, where shared storage is slow.

`RAYFL_NODE_CACHE` names a folder, whose copies all processes of the node share; `RAYFL_NODE_CACHE_GB` says how many GiB
they may take. A copy is named by the digests of its content, so no file can name a place, and folders with the same
fragments share them.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rayfl.data.prepared.manifest import CHUNK_BYTES, MANIFEST, StoredFile
from rayfl.errors import DataError, ResourceError
from rayfl.files import atomic_write, inside

DEFAULT_GB = 64.0

_COPY, _LOCK = ".copy", "lock"

Opened = TypeVar("Opened")


@dataclass(frozen=True)
class NodeCache:
    """A folder with copies.

    A copy is compared with its digests while it is written, once per node. Its time of change is then set to a number
    from its digests, so a copy that was cut short or written to since is noticed by its size or time, and replaced.

    The copies that were used longest ago are removed for new ones. Linux keeps a removed file readable where it is
    mapped, and its disk space taken until no process maps it.

    Attributes:
        folder: The folder; it need not exist.
        limit: Bytes that copies may take; a larger file is not copied.
    """

    folder: Path
    limit: int

    def opened(self, folder: Path, stored: StoredFile, open_copy: Callable[[Path], Opened]) -> Opened | None:
        """Opens the copy of a file, which is made if this node has none.

        One process of a node copies at a time; others that need a copy wait.

        Args:
            folder: The prepared folder.
            stored: The file.
            open_copy: Opens a path, such as by mapping it.

        Returns:
            What `open_copy` returns; None if the file is larger than the limit.

        Raises:
            DataError: The file is missing or damaged.
            ResourceError: The cache cannot be used.
        """
        if stored.bytes > self.limit:
            return None
        copy = self._copy(stored)
        with self._usable(stored):
            with suppress(FileNotFoundError):  # another process has just removed it
                if self._is_whole(copy, stored):
                    self.used(stored)
                    return open_copy(copy)
            with self._locked():
                if not self._is_whole(copy, stored):
                    self._make_room(stored.bytes, copy)
                    self._write(copy, folder, stored)
                return open_copy(copy)

    def used(self, stored: StoredFile) -> None:
        """Notes that the copy of a file is in use."""
        with suppress(OSError):  # it has just been removed
            os.utime(self._copy(stored), ns=(time.time_ns(), _mark(stored)))

    def _copy(self, stored: StoredFile) -> Path:
        return self.folder / f"{_key(stored)}{_COPY}"

    @staticmethod
    def _is_whole(copy: Path, stored: StoredFile) -> bool:
        try:
            status = copy.stat()
        except FileNotFoundError:
            return False
        return (status.st_size, status.st_mtime_ns) == (stored.bytes, _mark(stored))

    @contextmanager
    def _usable(self, stored: StoredFile) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            yield
        except OSError as error:
            raise ResourceError(
                f"RAYFL_NODE_CACHE: cannot keep {stored.bytes / 2**20:,.1f} MiB in '{self.folder}' "
                f"({error.strerror or error}); name a folder with room, lower RAYFL_NODE_CACHE_GB, or unset both"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / _LOCK).open("ab") as lock:  # closing it releases it, as does the end of the process
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make_room(self, size: int, copy: Path) -> None:
        """Removes what killed processes left, and then copies until so many more bytes fit."""
        copy.unlink(missing_ok=True)
        for unfinished in self.folder.glob(f".*{_COPY}.*"):
            unfinished.unlink()
        copies = sorted(((file.stat(), file) for file in self.folder.glob(f"*{_COPY}")), key=_last_used)
        taken = sum(status.st_size for status, _ in copies)
        for status, file in copies:
            if taken + size <= self.limit and shutil.disk_usage(self.folder).free >= size:
                return
            file.unlink()
            taken -= status.st_size

    @staticmethod
    def _write(copy: Path, folder: Path, stored: StoredFile) -> None:
        source, content = inside(folder, stored.file, folder / MANIFEST, DataError), stored.mapped(folder)
        with atomic_write(copy) as temporary:
            with temporary.open("wb") as file:
                for chunk in range(stored.chunks):
                    stored.check(source, content, chunk)
                    file.write(content[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES].data)
            os.utime(temporary, ns=(time.time_ns(), _mark(stored)))


def node_cache() -> NodeCache | None:
    """The cache that the environment of this process names; None if it names none.

    Raises:
        ResourceError: It names a relative folder, or no number of GiB.
    """
    folder, text = os.environ.get("RAYFL_NODE_CACHE"), os.environ.get("RAYFL_NODE_CACHE_GB") or str(DEFAULT_GB)
    if not folder:
        return None
    if not Path(folder).is_absolute():
        raise ResourceError(f"RAYFL_NODE_CACHE: '{folder}' is relative; name a folder of this node from the root on")
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise ResourceError(f"RAYFL_NODE_CACHE_GB: '{text}' is not a number of GiB above 0")
    return NodeCache(Path(folder), int(limit * 2**30))


def _key(stored: StoredFile) -> str:
    return hashlib.sha256(f"{stored.bytes} {stored.digests}".encode()).hexdigest()


def _mark(stored: StoredFile) -> int:
    """The time of change of a whole copy, in ns: even seconds before 1988, which every file system can store."""
    return 2 * int(_key(stored)[:7], 16) * 10**9


def _last_used(copy: tuple[os.stat_result, Path]) -> int:
    return copy[0].st_atime_ns
