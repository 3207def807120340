"""Inputs that are items of a PyTorch Dataset and are read when they are accessed.

Every process reads the Dataset itself; processes compare some items and labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rayfl.data.indexed_rows import NumberedRows
from rayfl.data.inputs import AsArray, Pieces, spaced
from rayfl.data.named_functions import SourceCall
from rayfl.data.torch_datasets import MapStyle, given_sets, held_labels, read_item
from rayfl.data.tried import Tried
from rayfl.errors import DataError


@contextmanager
def one_thread() -> Iterator[None]:
    """Reads items under one thread of PyTorch, so that reductions have the same bits for any number of CPUs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class OpenSets:
    """The Datasets of a source, by set name.

    A process that receives it repeats the call of the source, and checks that it returns the same data: the labels come
    from the process that started the run, so inputs in another order would train on other samples' labels. So no data
    is sent, and a Dataset need not be picklable.

    Args:
        call: The call that created the Datasets.
        datasets: The Datasets that it returned.
        tried: By set, the items that were tried.
    """

    def __init__(self, call: SourceCall, datasets: Mapping[str, MapStyle], tried: Mapping[str, Tried]) -> None:
        self._call, self._datasets, self._tried = call, dict(datasets), dict(tried)
        self._sizes = {part: len(dataset) for part, dataset in datasets.items()}
        self._last: tuple[tuple[str, bytes], list[dict[str, np.ndarray]]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_datasets": {}, "_last": None}

    @property
    def name(self) -> str:
        """The source, for messages."""
        return f"data.name: '{self._call.name}'"

    def inputs(self, part: str, rows: np.ndarray) -> list[dict[str, np.ndarray]]:
        """The inputs of some items; named inputs are read once, although each name requests them."""
        asked = (part, rows.tobytes())
        if self._last is not None and self._last[0] == asked:
            return self._last[1]
        dataset = self._dataset(part)
        inputs = [read_item(dataset, row, f"{self.name}: {part}")[0] for row in rows.tolist()]
        self._last = (asked, inputs) if inputs and len(inputs[0]) > 1 else None
        return inputs

    def open(self) -> None:
        """Repeats the call of the source, unless this process has its Datasets already.

        Raises:
            DataError: The source returned other data than where the run started.
        """
        if self._datasets:
            return
        datasets = {name: given_set.dataset for name, given_set in given_sets(self._call(), self.name).items()}
        for name, size in self._sizes.items():
            here = len(datasets[name]) if name in datasets else 0
            if here != size:
                raise DataError(
                    f"{self.name}: {name} has {here} items here, but {size} where the run started; make it "
                    "read the same data on every machine"
                )
        for name, tried in self._tried.items():
            if not tried.matches(self._tried_here(datasets[name], name)):
                raise DataError(
                    f"{self.name}: {name} has other items or labels here than where the run started; every worker "
                    "process calls the source again, so make it return the same data each time: seed the generators "
                    "that it draws from (the parameter `seed` gets the seed of the data), and sort the files that it "
                    "lists"
                )
        self._datasets = datasets

    def _tried_here(self, dataset: MapStyle, part: str) -> Tried:
        with one_thread():
            read = [read_item(dataset, row, f"{self.name}: {part}") for row in spaced(len(dataset))]
        return Tried.of([item for item, _ in read], [label for _, label in read], held_labels(dataset))

    def _dataset(self, part: str) -> MapStyle:
        self.open()
        return self._datasets[part]


def items_digest(items: Sequence[Mapping[str, np.ndarray]]) -> str:
    """SHA-256 of the inputs of some items, in hexadecimal."""
    digest = hashlib.sha256()
    for item in items:
        for name, value in sorted(item.items()):
            digest.update(f"{name} {value.dtype} {value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Field:
    """One input of the items of a set.

    Attributes:
        sets: The Datasets that hold the items.
        part: Name of the set.
        name: Name of the input; "" if it is the only one.
        shape: Shape of the input of the first item.
        dtype: The dtype of the input of every item.
        tried: SHA-256 of the items that were tried, in hexadecimal.
        ragged: Whether the first dimension may differ.
    """

    sets: OpenSets
    part: str
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    tried: str
    ragged: bool

    def read(self, rows: np.ndarray) -> list[np.ndarray]:
        """The input of some items.

        Raises:
            DataError: An item lacks this input, or has another shape or type than the first item.
        """
        return self.of_items(rows.tolist(), self.sets.inputs(self.part, rows))

    def of_items(self, rows: Sequence[int], items: Sequence[Mapping[str, np.ndarray]]) -> list[np.ndarray]:
        """The input of items that were read; see `read`."""
        for row, item in zip(rows, items, strict=True):
            if self.name not in item:
                raise DataError(
                    f"{self.sets.name}: {self.part}: item {row} has inputs {', '.join(item) or 'without a name'}, but "
                    f"not '{self.name}' like the first one; give every item the same inputs"
                )
            self._check(row, item[self.name])
        return [item[self.name] for item in items]

    def _check(self, row: int, value: np.ndarray) -> None:
        fixed = 1 if self.ragged else 0
        if value.dtype != self.dtype or value.ndim != len(self.shape) or value.shape[fixed:] != self.shape[fixed:]:
            which = f"input '{self.name}'" if self.name else "the input"
            remedy = "" if self.ragged else ", or set data.collate if inputs differ in length"
            raise DataError(
                f"{self.sets.name}: {self.part}: {which} of item {row} is {list(value.shape)} {value.dtype}, but "
                f"{list(self.shape)} {self.dtype} for the first; make them equal{remedy}"
            )


@dataclass(frozen=True)
class TorchRows(NumberedRows, AsArray):
    """Inputs of one shape with the interface of an array, read when they are accessed.

    Attributes:
        field: The input.
        rows: [n] int64, numbers of the items.
    """

    field: Field
    rows: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self.field.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.field.dtype

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """Reads some rows: [rows, ...]."""
        wanted = self.rows[rows]
        values = np.empty((len(wanted), *self.field.shape), self.dtype)
        for place, value in enumerate(self.field.read(wanted)):
            values[place] = value
        return values

    def reopen(self) -> None:
        self.field.sets.open()


@dataclass(frozen=True)
class TorchPieces(NumberedRows, Pieces):
    """Inputs whose first dimension differs, read when they are accessed; otherwise like `TorchRows`."""

    field: Field
    rows: np.ndarray

    @property
    def dtype(self) -> np.dtype:
        return self.field.dtype

    @property
    def inner_shape(self) -> tuple[int, ...]:
        return self.field.shape[1:]

    def __getitem__(self, rows: np.ndarray | slice) -> list[np.ndarray]:
        """Copies of some pieces."""
        return [piece.copy() for piece in self.field.read(self.rows[rows])]

    def reopen(self) -> None:
        self.field.sets.open()
