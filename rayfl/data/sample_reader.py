"""Samples on a device: fetched by rows, and kept there as they are stored while they fit."""

from __future__ import annotations

import numpy as np
import torch

from rayfl.data.dataset import Samples
from rayfl.data.device_copy import to_device, to_tensor


class SampleReader:
    """Fetches samples to a device.

    Samples that were fetched once stay on the device as they are stored (images as uint8) until the budget is used up;
    from then on, fetches that need others are served from the CPU. What is fetched is the same either way.

    Args:
        samples: What to read.
        device: Where to.
        budget_bytes: How much of the device's memory may be used; it is reserved at the first fetch.
    """

    def __init__(self, samples: Samples, device: torch.device, budget_bytes: int = 0) -> None:
        self._samples, self._device = samples, device
        size = int(np.prod(samples.x.shape[1:], dtype=np.int64)) * samples.x.dtype.itemsize + samples.y.dtype.itemsize
        self._capacity = min(len(samples), budget_bytes // size)
        self.reserved_bytes = self._capacity * size
        self._slots = np.full(len(samples) if self._capacity else 0, -1, np.int64)
        self._used = 0
        self._x = self._y = torch.empty(0)

    def fetch(self, rows: np.ndarray | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Fetches some samples, in the order of `rows`.

        Returns:
            Inputs with the dtype in which they are stored, and labels [n] int64: copies, on the device.
        """
        if self._capacity:
            slots = self._resident(rows)
            if slots is not None:
                index = to_device(torch.from_numpy(slots), self._device)
                return self._x.index_select(0, index), self._y.index_select(0, index).long()
        x = to_tensor(self._samples.x, rows, self._device)
        return x, self.labels(rows)

    def labels(self, rows: np.ndarray | slice) -> torch.Tensor:
        """Fetches the labels of some samples, in the order of `rows`."""
        return to_tensor(self._samples.y, rows, self._device).long()

    def _resident(self, rows: np.ndarray | slice) -> np.ndarray | None:
        """[n] int64: the places of the rows on the device, where those that are not there yet fit; else None."""
        slots = self._slots[rows]
        wanted = rows if isinstance(rows, np.ndarray) else np.arange(len(self._samples))[rows]
        missing = np.unique(wanted[slots < 0])
        end = self._used + len(missing)
        if end > self._capacity:
            return None
        if len(missing):
            x, y = (to_tensor(array, missing, self._device) for array in (self._samples.x, self._samples.y))
            if not self._used:
                self._x, self._y = (part.new_empty((self._capacity, *part.shape[1:])) for part in (x, y))
            self._x[self._used : end], self._y[self._used : end] = x, y
            self._slots[missing] = np.arange(self._used, end)
            self._used = end
        return self._slots[rows].copy()
