"""Room on the node's disk for what does not fit into memory; it is gone with its process, however that ends."""

from __future__ import annotations

import os
import tempfile
import weakref
from bisect import bisect


class ScratchFile:
    """Pieces of bytes in a file that no folder lists, so that the system frees it even after SIGKILL.

    It lies where `tempfile` puts files (TMPDIR) and is opened with the first piece. It is read and written, not mapped:
    the system keeps its pages in memory all the same, and a full disk is an error instead of the process's death.
    Pieces may be read in several threads, while one of them writes and releases others.
    """

    def __init__(self) -> None:
        self._descriptor = -1
        self._end = 0
        self._gaps: list[tuple[int, int]] = []

    @property
    def size(self) -> int:
        """Bytes from the first piece to the last one's end."""
        return self._end

    def write(self, content: memoryview) -> int:
        """Writes a piece.

        Args:
            content: Bytes.

        Returns:
            Where it begins.

        Raises:
            OSError: There is no room on the disk.
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
            start: What `write` returned.
            target: As many bytes as are to be read.
        """
        done = 0
        while done < len(target):
            if not (read := os.preadv(self._descriptor, [target[done:]], start + done)):
                raise EOFError("nothing was written there")
            done += read

    def release(self, start: int, size: int) -> None:
        """Frees the room of a piece."""
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
        """The beginning of the first gap that is large enough, or the end."""
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
