"""Keeps tensors in main memory up to a budget, and beyond it in a temporary file on the node's disk.

The file vanishes with its process, however that ends.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from bisect import bisect
from collections import deque

import numpy as np
import torch

from rayfl.errors import ResourceError


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


class TensorMemory:
    """Keeps copies of tensors for as long as they are referenced.

    A tensor goes to memory if it fits into the budget, otherwise to a `ScratchFile`, and stays there. Evicting the
    least recently used ones instead would cost more writes and save no reads: most cohorts are drawn at random or take
    all clients in turn, the worst case for such a cache. The system caches tensors on disk that are used often.

    Args:
        budget_bytes: Limit on the total size of tensors in memory.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget, self._held = budget_bytes, 0
        self._file = ScratchFile()
        self._dropped: deque[tuple[int | None, int]] = deque()

    @property
    def bytes_in_memory(self) -> int:
        """Total size of the tensors in memory."""
        self._free_dropped()
        return self._held

    @property
    def bytes_on_disk(self) -> int:
        """Size of the file."""
        self._free_dropped()
        return self._file.size

    def keep(self, tensor: torch.Tensor) -> KeptTensor:
        """Keeps a contiguous copy.

        Raises:
            ResourceError: It fits neither into the budget nor on the disk.
        """
        self._free_dropped()
        tensor, size = tensor.detach(), tensor.nbytes
        if self._held + size <= self._budget:
            copy = tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
            self._held += size
            return KeptTensor(copy, None, copy, self._file, self._dropped)
        try:
            start = self._file.write(_bytes_of(tensor.to("cpu", memory_format=torch.contiguous_format)))
        except OSError as error:
            raise ResourceError(
                "the clients' states do not fit into resources.client_state_gb, and the disk of "
                f"'{tempfile.gettempdir()}', which holds {self._file.size / 2**30:.3g} GiB of them, takes no more "
                f"({error.strerror}): set TMPDIR, where Ray or the run is started on this machine, to a folder on a "
                "larger disk, or raise resources.client_state_gb"
            ) from None
        return KeptTensor(tensor, start, None, self._file, self._dropped)

    def _free_dropped(self) -> None:
        while self._dropped:
            start, size = self._dropped.popleft()
            if start is None:
                self._held -= size
            else:
                self._file.release(start, size)


class KeptTensor:
    """A tensor in a `TensorMemory`; it is never modified, and any thread may read it.

    A tensor on disk is represented by small Python objects only, which are allocated separately. Even a small PyTorch
    object that stays alive would fragment the memory that training allocates and frees.

    Args:
        tensor: Gives shape, type and size.
        start: Its offset in the file; None if it is in memory.
        held: The copy in memory, if there is one.
        file: The file that holds it otherwise.
        dropped: Receives offset and size once it is no longer referenced.
    """

    __slots__ = ("_dropped", "_dtype", "_file", "_held", "_shape", "_size", "_start")

    def __init__(
        self,
        tensor: torch.Tensor,
        start: int | None,
        held: torch.Tensor | None,
        file: ScratchFile,
        dropped: deque[tuple[int | None, int]],
    ) -> None:
        self._shape, self._dtype, self._size = tuple(tensor.shape), tensor.dtype, tensor.nbytes
        self._start, self._held, self._file, self._dropped = start, held, file, dropped

    def copy(self, device: torch.device) -> torch.Tensor:
        """Returns a copy on a device."""
        return self._read().to(device) if self._held is None else self._held.to(device, copy=True)

    def array(self) -> np.ndarray:
        """Returns the values, read only by convention."""
        return (self._read() if self._held is None else self._held).numpy()

    def _read(self) -> torch.Tensor:
        assert self._start is not None
        tensor = torch.empty(self._shape, dtype=self._dtype)
        self._file.read(self._start, _bytes_of(tensor))
        return tensor

    def __del__(self) -> None:
        # runs in any thread, so the space is freed later, by the thread that keeps tensors
        self._dropped.append((self._start, self._size))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Returns the memory of a contiguous CPU tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
