"""A temporary file for data that does not fit into memory; it vanishes with its process, however that ends."""

from __future__ import annotations

import os
import tempfile
import weakref
from bisect import bisect


class ScratchFile:
    """Pieces of bytes in a file without a directory entry, which the system frees even after SIGKILL.

    The file is opened with the first piece, in the folder of `tempfile` (TMPDIR). It is read and written, not mapped:
    the system caches its pages all the same, and a full disk raises an error instead of killing the process. Several
    threads may read pieces while one of them writes and releases others.
    """

    def __init__(self) -> None:
        self._descriptor = -1
        self._end = 0
        self._gaps: list[tuple[int, int]] = []

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self._end

    def write(self, content: memoryview) -> int:
        """Writes a piece.

        Args:
            content: The bytes.

        Returns:
            Offset of the piece.

        Raises:
            OSError: The disk is full.
        """
        start, written = self._take(len(content)), 0
        try:
            if self._descriptor < 0:
                self._open()
            while written < len(content):
                written += os.pwrite(self._descriptor, content[written:], start + written)
        except OSError:
            self.release(start, len(content))
            raise
        return start

    def read(self, start: int, target: memoryview) -> None:
        """Reads a piece, or its beginning.

        Args:
            start: The offset that `write` returned.
            target: Buffer to fill.
        """
        done = 0
        while done < len(target):
            if not (read := os.preadv(self._descriptor, [target[done:]], start + done)):
                raise EOFError("nothing was written there")
            done += read

    def release(self, start: int, size: int) -> None:
        """Frees the space of a piece."""
        end, place = start + size, bisect(self._gaps, (start, size))
        if place < len(self._gaps) and self._gaps[place][0] == end:
            end += self._gaps.pop(place)[1]
        if place and sum(self._gaps[place - 1]) == start:
            place -= 1
            start = self._gaps.pop(place)[0]
        if end < self._end:
            self._gaps.insert(place, (start, end - start))
            return
        self._end = start
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, start)

    def _take(self, size: int) -> int:
        """Returns the offset of the first gap that is large enough, or the end of the file."""
        for place, (start, free) in enumerate(self._gaps):
            if free >= size:
                self._gaps[place : place + 1] = [(start + size, free - size)] if free > size else []
                return start
        start, self._end = self._end, self._end + size
        return start

    def _open(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
