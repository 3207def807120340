"""Tensors that are kept in main memory up to a budget, and beyond it on the node's disk."""

from __future__ import annotations

import tempfile
from collections import deque

import numpy as np
import torch

from rayfl.engine.scratch_file import ScratchFile
from rayfl.errors import ResourceError


class TensorMemory:
    """Keeps copies of tensors until nobody refers to them any more.

    A tensor goes to memory as long as the budget has room, and otherwise to a `ScratchFile`; it stays where it is.
    Moving the least recently used ones out instead would cost more writes and save no reads: cohorts are mostly drawn
    at random, or take all clients in turn, which such a cache answers worst. What is on the disk and used often is in
    the system's own cache.

    Args:
        budget_bytes: What the tensors in memory may take together.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget, self._held = budget_bytes, 0
        self._file = ScratchFile()
        self._dropped: deque[tuple[int | None, int]] = deque()

    @property
    def bytes_in_memory(self) -> int:
        """What the tensors in memory take."""
        self._free_dropped()
        return self._held

    @property
    def bytes_on_disk(self) -> int:
        """What the file takes."""
        self._free_dropped()
        return self._file.size

    def keep(self, tensor: torch.Tensor) -> KeptTensor:
        """Keeps a copy, laid out row by row, as files have it.

        Raises:
            ResourceError: Neither the budget nor the disk has room for it.
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
                f"what clients keep does not fit into resources.client_state_gb, and the disk of "
                f"'{tempfile.gettempdir()}', which has {self._file.size / 2**30:.3g} GiB of it, takes no more "
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
    """A tensor in a `TensorMemory`; never changed, and may be read in any thread.

    One that is on disk consists of small Python objects alone, which have memory of their own. Whatever of PyTorch's
    stays, however small, lies between the tensors of the training and cuts up the room that they leave to the next.

    Args:
        tensor: Whose shape, type and size it has.
        start: Its beginning in the file; None if it is in memory.
        held: The copy in memory, if there is one.
        file: Where it is otherwise.
        dropped: Gets the beginning and the size once nobody refers to it.
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
        """A copy on a device."""
        return self._read().to(device) if self._held is None else self._held.to(device, copy=True)

    def array(self) -> np.ndarray:
        """The values, to be read only."""
        return (self._read() if self._held is None else self._held).numpy()

    def _read(self) -> torch.Tensor:
        assert self._start is not None
        tensor = torch.empty(self._shape, dtype=self._dtype)
        self._file.read(self._start, _bytes_of(tensor))
        return tensor

    def __del__(self) -> None:
        # in whichever thread comes last, so that the room is freed by the one that keeps tensors
        self._dropped.append((self._start, self._size))


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor in main memory."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
