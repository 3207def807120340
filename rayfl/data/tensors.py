"""Samples as tensors on a device: copied, collated if inputs differ in length, and kept there while they fit.

They are kept in stored form. Arrays may be shared by processes and read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from rayfl.config.section import Named
from rayfl.data.dataset import Samples
from rayfl.data.indexed_rows import IndexedRows
from rayfl.data.inputs import Array, Fields, Pieces, Rendered, named_parts
from rayfl.data.named_functions import COLLATIONS
from rayfl.errors import RayflError, ScenarioError
from rayfl.wording import report_as_theirs

Input = torch.Tensor | dict[str, torch.Tensor]
"""The inputs of a batch: one tensor, or keyword arguments of the network's `forward`."""

Collation = Callable[[list[Any]], Input]

_EXPECTED = (
    "a collation is called as collate(inputs) with a list of inputs, one per sample, each an array or a dictionary of "
    "arrays; it returns a tensor or a dictionary of tensors with one row per sample"
)


def pad(inputs: Sequence[np.ndarray], value: float = 0) -> torch.Tensor:
    """Pads every input at its end to the length of the longest.

    Args:
        inputs: [length_i, ...] arrays of one dtype.
        value: The padding value.

    Returns:
        A tensor [n, longest, ...] of the same dtype; of int64, as the network gets it, if that cannot hold the value.

    Raises:
        ScenarioError: The inputs are dictionaries, or integers that are padded with a fraction.
    """
    if not isinstance(inputs[0], np.ndarray):
        raise ScenarioError("data.collate: 'pad' is for single inputs, not for inputs by name; write your own")
    longest = max(len(piece) for piece in inputs)
    dtype = inputs[0].dtype
    if dtype.kind in "ui":
        if not float(value).is_integer():
            raise ScenarioError(f"data.collate.value: {value:g} is no integer, but the inputs are")
        if not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            dtype = np.dtype(np.int64)
    padded = np.full((len(inputs), longest, *inputs[0].shape[1:]), value, dtype)
    for row, piece in zip(padded, inputs, strict=True):
        row[: len(piece)] = piece
    return torch.from_numpy(padded)


def build_collation(chosen: Named) -> Collation:
    """Builds the collation that a scenario names; its result is checked for every batch.

    Raises:
        ScenarioError: The name or an option is unknown, or the object is not callable.
    """
    what = f"data.collate: '{chosen.name}'"
    collate = COLLATIONS.bound(chosen, "data.collate")

    def checked(inputs: list[Any]) -> Input:
        try:
            collated = collate(inputs)
        except RayflError:
            raise
        except (Exception, SystemExit) as error:
            headline, _, traceback = report_as_theirs(error, what).partition("\n")
            raise ScenarioError(f"{headline}; {_EXPECTED}" + (f"\n{traceback}" if traceback else "")) from None
        return _checked(collated, len(inputs), what)

    return checked


def _checked(collated: Any, number: int, what: str) -> Input:
    tensors = collated if isinstance(collated, dict) and collated else {"": collated}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor) or not isinstance(name, str):
            raise ScenarioError(f"{what} returned an object of type {type(tensor).__name__}; {_EXPECTED}")
        if not tensor.ndim or len(tensor) != number:
            raise ScenarioError(f"{what} returned a tensor {list(tensor.shape)} for {number} samples; {_EXPECTED}")
    return collated  # type: ignore[no-any-return]


def to_tensor(array: Array, rows: np.ndarray | slice, device: torch.device) -> torch.Tensor:
    """Copies some rows of an array into memory aligned by PyTorch.

    `torch.from_numpy` on a read-only array would make a writable alias of memory that other processes share.
    """
    count = len(rows) if isinstance(rows, np.ndarray) else len(range(*rows.indices(len(array))))
    tensor = torch.empty((count, *array.shape[1:]), dtype=_torch_dtype(array.dtype))
    if isinstance(array, IndexedRows):
        rows = array.rows[rows]
        array = array.array
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


class SampleReader:
    """Fetches samples to a device.

    Fetched samples stay on the device in stored form (images as uint8) until the budget is used up. After that, fetches
    that need other samples copy from the CPU. The result is the same either way. Collated and rendered inputs are not
    kept.

    Args:
        samples: The samples to read.
        device: The target device.
        budget_bytes: Amount of device memory to use; it is reserved at the first fetch.
        collate: The collation of the scenario, if any, which makes one batch from a list of inputs.
    """

    def __init__(
        self, samples: Samples, device: torch.device, budget_bytes: int = 0, collate: Collation | None = None
    ) -> None:
        self._samples, self._device, self._collate = samples, device, collate
        self._by_name = isinstance(samples.x, Fields)
        self._names = list(named_parts(samples.x))
        parts = [part for part in named_parts(samples.x).values() if not isinstance(part, Pieces)]
        self._columns: list[Array] = [] if collate else [*parts, samples.y]
        size = sum(int(np.prod(part.shape[1:], dtype=np.int64)) * part.dtype.itemsize for part in self._columns)
        keeps = self._columns and not self.renders
        self._capacity = min(len(samples), budget_bytes // size) if keeps else 0
        self.row_bytes = size
        self.reserved_bytes = self._capacity * size
        self._slots = np.full(len(samples) if self._capacity else 0, -1, np.int64)
        self._used = 0
        self._kept: list[torch.Tensor] = []

    @property
    def renders(self) -> bool:
        """Whether inputs are rendered for every training batch."""
        return isinstance(self._samples.x, Rendered)

    @property
    def shares_views(self) -> bool:
        """Whether the views of a training batch start from the same inputs."""
        x = self._samples.x
        return not isinstance(x, Rendered) or x.shares_views

    def render(self, rows: np.ndarray, rngs: Sequence[np.random.Generator]) -> list[torch.Tensor]:
        """Renders the inputs of some samples for every view of a training batch, uint8 on the device."""
        return [to_device(torch.from_numpy(x), self._device) for x in self._samples.x.render_views(rows, rngs)]

    def fetch(self, rows: np.ndarray | slice) -> tuple[Any, torch.Tensor]:
        """Fetches some samples, in the order of `rows`.

        Returns:
            Copies on the device: inputs with their stored dtype, by name if they have names, and labels, int64 or
            float32.
        """
        if self._collate:
            return self._collated(rows, self._collate), self.labels(rows)
        *inputs, y = self._fetched(rows)
        x = dict(zip(self._names, inputs, strict=True)) if self._by_name else inputs[0]
        return x, _labels(y)

    def labels(self, rows: np.ndarray | slice) -> torch.Tensor:
        """Fetches the labels of some samples, in the order of `rows`: int64 or float32."""
        return _labels(to_tensor(self._samples.y, rows, self._device))

    def _fetched(self, rows: np.ndarray | slice) -> list[torch.Tensor]:
        if self._capacity:
            slots = self._resident(rows)
            if slots is not None:
                index = to_device(torch.from_numpy(slots), self._device)
                return [buffer.index_select(0, index) for buffer in self._kept]
        return [to_tensor(column, rows, self._device) for column in self._columns]

    def _collated(self, rows: np.ndarray | slice, collate: Collation) -> Input:
        if isinstance(rows, slice):  # rows of an array would not be copies, and a collation may write to its inputs
            rows = np.arange(*rows.indices(len(self._samples)))
        parts = {name: part[rows] for name, part in named_parts(self._samples.x).items()}
        if self._by_name:
            samples = [dict(zip(parts, values, strict=True)) for values in zip(*parts.values(), strict=True)]
            collated = collate(samples)
        else:
            collated = collate(list(parts[""]))
        if isinstance(collated, dict):
            return {name: to_device(tensor, self._device) for name, tensor in collated.items()}
        return to_device(collated, self._device)

    def _resident(self, rows: np.ndarray | slice) -> np.ndarray | None:
        """[n] int64: the slots of the rows on the device, after copying missing ones; None if they do not fit."""
        slots = self._slots[rows]
        wanted = rows if isinstance(rows, np.ndarray) else np.arange(len(self._samples))[rows]
        missing = np.unique(wanted[slots < 0])
        end = self._used + len(missing)
        if end > self._capacity:
            return None
        if len(missing):
            parts = [to_tensor(column, missing, self._device) for column in self._columns]
            if not self._used:
                self._kept = [part.new_empty((self._capacity, *part.shape[1:])) for part in parts]
            for buffer, part in zip(self._kept, parts, strict=True):
                buffer[self._used : end] = part
            self._slots[missing] = np.arange(self._used, end)
            self._used = end
        return self._slots[rows].copy()


def _labels(y: torch.Tensor) -> torch.Tensor:
    return y.float() if y.is_floating_point() else y.long()
