"""Copies numpy arrays, which may be shared and read-only, to tensors on a device."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from rayfl.data.inputs import Array


def to_tensor(array: Array, rows: np.ndarray | slice, device: torch.device) -> torch.Tensor:
    """Copies some rows of an array into memory aligned by PyTorch.

    `torch.from_numpy` on a read-only array would make a writable alias of memory that other processes share.
    """
    count = len(rows) if isinstance(rows, np.ndarray) else len(range(*rows.indices(len(array))))
    tensor = torch.empty((count, *array.shape[1:]), dtype=_torch_dtype(array.dtype))
    if isinstance(rows, np.ndarray) and isinstance(array, np.ndarray):
        np.take(array, rows, axis=0, out=tensor.numpy(), mode="clip")  # other modes go through a second buffer
    else:
        tensor.numpy()[...] = array[rows]
    return to_device(tensor, device)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Moves a tensor from the CPU to a device. Copies to CUDA use pinned memory, so the CPU does not wait for them."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor if device.type == "cpu" else tensor.to(device)


@cache
def _torch_dtype(dtype: np.dtype) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
