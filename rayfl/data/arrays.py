"""Builds a data set from your own arrays.

Natural clients come from the owner of every sample, or from the rows of every client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from rayfl.data.checks import array_from, labels_from, number_texts, unmasked
from rayfl.data.client_rows import ClientRows, known_labels
from rayfl.data.dataset import ClientNames, Dataset, NaturalClients, OrderedShards, Provenance, Samples, Shards
from rayfl.data.formats.columns import MappedRows
from rayfl.data.indexed_rows import IndexedRows
from rayfl.data.inputs import Array, Fields, Inputs, Pieces, Ragged, TextWindows, named_parts
from rayfl.data.partition.split import checked_shards
from rayfl.data.torch_rows import TorchRows
from rayfl.errors import DataError


def natural_clients(sizes: Mapping[str, int], clients: Mapping[str, Any], what: str) -> NaturalClients | None:
    """Builds the clients that a source defines.

    Args:
        sizes: Number of samples by set.
        clients: For `train`, and optionally for `test`: owners [n], integers or strings, or the rows of every client, a
            mapping from names to lists or a list of lists, or `OrderedShards`. Clients are in the order of the sorted
            owners, or of the lists.
        what: The source, for messages.

    Returns:
        The clients, or None if nothing is given.

    Raises:
        DataError: `clients` has another form, a row does not exist or appears twice, or a client is in `test` but not
            in `train`.
    """
    for part in clients:
        if part not in ("train", "test"):
            raise DataError(f"{what}: {part} has owners; only 'train' and 'test' belong to clients")
    if "train" not in clients:
        if clients:
            raise DataError(f"{what}: test has owners, but train has none")
        return None
    names, train = _named_shards(clients["train"], sizes["train"], what, "train")
    if "test" not in clients:
        return NaturalClients(names, train, None)
    test_names, shards = _named_shards(clients["test"], sizes["test"], what, "test")
    numbers = pc.index_in(_arrow(test_names), value_set=_arrow(names))
    if numbers.null_count:
        unknown = test_names[int(np.argmin(numbers.is_valid()))]
        raise DataError(
            f"{what}: test has samples of '{unknown}', but train has none; leave out the owners of test, so that "
            "its samples belong to no client"
        )
    owner = np.repeat(numbers.to_numpy(), shards.sizes)
    test = Shards.by_owner(owner, len(names))
    return NaturalClients(names, train, Shards(shards.rows[test.rows], test.offsets))


def _arrow(names: ClientNames) -> pa.Array:
    offsets = np.concatenate([[0], names.ends])
    return pa.LargeStringArray.from_buffers(len(names), pa.py_buffer(offsets), pa.py_buffer(names.text))


def _named_shards(clients: Any, number: int, what: str, part: str) -> tuple[ClientNames, Shards]:
    """The clients' names and their rows; clients of shards are named by their number, and some may have no rows."""
    if isinstance(clients, OrderedShards):
        held = np.flatnonzero(clients.sizes)
        return ClientNames.of(held), OrderedShards(np.concatenate([[0], np.cumsum(clients.sizes[held])]))
    if (lists := _lists(clients)) is not None:
        texts = [*map(str, lists)]
        if len({*texts}) < len(texts):
            twice = next(text for text in texts if texts.count(text) > 1)
            raise DataError(f"{what}: {part}: two clients are called '{twice}', as a number and as text; rename one")
        lists = {name: one for name, one in lists.items() if one.ndim != 1 or len(one)}
        if not lists:
            raise DataError(f"{what}: {part} names no clients; give the rows of at least one")
        for name, one in lists.items():
            if one.ndim != 1:
                raise DataError(f"{what}: {part}: the rows of '{name}' are {one.dtype}{list(one.shape)}; give a list")
        rows = list(lists.values())
        shards = Shards(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
        return ClientNames.of([*map(str, lists)]), checked_shards(shards, number, None, f"{what}: {part}")
    owner = np.asarray(unmasked(np.asanyarray(clients), f"{what}: the owners of {part}"))
    if owner.dtype == object and all(isinstance(one, str) for one in owner.flat):  # as pandas stores strings
        owner = owner.astype(str)
    if owner.shape != (number,) or owner.dtype.kind not in "uiUT":
        raise DataError(
            f"{what}: the owners of {part} are {owner.dtype}{list(owner.shape)} for {number} samples; give an integer "
            "or a string for each, or the rows of every client"
        )
    names, owner = np.unique(owner, return_inverse=True)
    return ClientNames.of(names), Shards.by_owner(owner, len(names))


def _lists(clients: Any) -> dict[Any, np.ndarray] | None:
    """The rows of every client by name, if `clients` has this form; clients of a list are named by their number."""
    if isinstance(clients, list | tuple) and len(clients) and np.ndim(clients[0]) == 1:
        clients = dict(enumerate(clients))
    if not isinstance(clients, Mapping):
        return None
    rows = {name: np.asarray(one) for name, one in clients.items()}
    return {name: one if one.size else one.astype(np.int64) for name, one in rows.items()}


_FORMS = (
    "arrays (train_x, train_y, test_x, test_y), nor a mapping from 'train', 'test' and the names of more test sets "
    "to (x, y), (x, y, clients) or a PyTorch Dataset"
)


def dataset_of_arrays(
    name: str, loaded: Any, provenance: Provenance | None = None, num_classes: int | None = None
) -> Dataset:
    """Builds a data set from numpy arrays, or anything that numpy can read.

    Args:
        name: The `data.name` that returned them, for messages.
        loaded: (train_x, train_y, test_x, test_y), or a mapping from `train`, `test` and the names of additional test
            sets to (x, y) or (x, y, clients). `clients` defines natural clients: the owner of every sample, [n]
            integers or strings, or the rows of every client, a mapping from names to lists or a list of lists. It may
            be omitted for `test`. x may also be a mapping from names to arrays; x or any of its arrays may be a list
            of arrays, lists or tensors of different lengths, which may be equal in some of the sets.
        provenance: Where the data comes from; by default, arrays of this name.
        num_classes: The number of classes, if labels are; by default the largest label determines it.

    Returns:
        A data set with classes if labels are single integers; otherwise without.

    Raises:
        DataError: `loaded` has another form, class labels do not start at 0, or a label is too large to be a class.
    """
    if not isinstance(loaded, Mapping):
        try:
            train_x, train_y, test_x, test_y = loaded
        except Exception as error:  # an arbitrary object may raise anything
            raise _no_data(name, loaded, error) from error
        loaded = {"train": (train_x, train_y), "test": (test_x, test_y)}
    if not {"train", "test"} <= set(loaded):
        raise _no_data(name, loaded, KeyError("'train' or 'test' is missing"))
    try:
        parts = _alike({part: _samples(part, *entry[:2]) for part, entry in loaded.items()})
        clients = {part: entry[2] for part, entry in loaded.items() if len(entry) > 2}
    except DataError as error:
        raise DataError(f"data.name: '{name}': {error}") from None
    except Exception as error:  # numpy passes on whatever an arbitrary object raises
        raise _no_data(name, loaded, error) from error
    for part, samples in parts.items():
        _check(samples, f"data.name: '{name}': {part}")
    return Dataset(
        name=name,
        train=parts["train"],
        test=parts["test"],
        num_classes=_num_classes(parts, f"data.name: '{name}'", num_classes),
        provenance=provenance or Provenance("arrays", f"arrays from {name}"),
        natural=natural_clients({part: len(data) for part, data in parts.items()}, clients, f"data.name: '{name}'"),
        tests={part: samples for part, samples in parts.items() if part not in ("train", "test")},
    )


def inputs_from(values: Any, what: str = "the inputs") -> Inputs:
    """Inputs from an array, a list of arrays or lists of different lengths, or a mapping from names to either.

    Raises:
        DataError: Values are masked or sparse, or lists differ in depth; `what` names the inputs.
    """
    if isinstance(values, Fields):
        return values
    if isinstance(values, Mapping):
        return Fields({name: _array_or_pieces(part, f"{what} '{name}'") for name, part in values.items()})
    return _array_or_pieces(values, what)


def _array_or_pieces(values: Any, what: str) -> Array | Pieces:
    if isinstance(values, Pieces | IndexedRows | TextWindows | MappedRows | TorchRows | ClientRows):
        return values
    listed = isinstance(values, list | tuple)
    pieces = listed or (isinstance(values, np.ndarray) and values.dtype == object)
    if not pieces or not len(values) or not all(map(_is_piece, values)):
        return array_from(values, what)
    equal = len({len(piece) for piece in values}) == 1
    if listed and equal and isinstance(values[0], list | tuple):
        return array_from(values, what)
    arrays = [array_from(piece, f"{what}, row {row},") for row, piece in enumerate(values)]
    if listed and equal:
        return np.stack(arrays)
    first = next((array for array in arrays if len(array)), arrays[0])  # an empty list is one of floats, without depth
    arrays = [array if len(array) else np.empty((0, *first.shape[1:]), first.dtype) for array in arrays]
    for row, array in enumerate(arrays):
        if array.shape[1:] != first.shape[1:]:
            raise DataError(
                f"{what}, row {row}, are {list(array.shape)}, but {list(first.shape)} in the first row that is not "
                "empty; only the first dimension may differ"
            )
    return Ragged.of(arrays)


def _alike(parts: Mapping[str, Samples]) -> dict[str, Samples]:
    """Makes pieces of inputs whose rows have one length in this set, but differ in length in another."""
    every = [named_parts(samples.x) for samples in parts.values()]
    ragged = {name for arrays in every for name, rows in arrays.items() if isinstance(rows, Pieces)}
    return {part: Samples(_with_pieces(samples.x, ragged), samples.y) for part, samples in parts.items()}


def _with_pieces(x: Inputs, names: Collection[str]) -> Inputs:
    parts = {name: _pieces(rows) if name in names else rows for name, rows in named_parts(x).items()}
    return Fields(parts) if isinstance(x, Fields) else parts[""]


def _pieces(rows: Array | Pieces) -> Array | Pieces:
    if not isinstance(rows, np.ndarray) or rows.ndim < 2:
        return rows
    number, length = rows.shape[:2]
    values = rows.reshape(number * length, *rows.shape[2:])
    return Ragged(values, np.arange(number) * length, np.full(number, length))


def _is_piece(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray | torch.Tensor) and value.ndim > 0)


def _samples(part: str, x: Any, y: Any) -> Samples:
    labels = y if isinstance(y, ClientRows) else labels_from(y, f"{part} labels")
    return Samples(inputs_from(x, f"{part} inputs"), labels)


def _no_data(name: str, loaded: Any, error: Exception) -> DataError:
    return DataError(
        f"data.name: '{name}' returned an object of type {type(loaded).__name__}, which is neither a "
        f"rayfl.data.Dataset nor {_FORMS} ({' '.join(str(error).split())})"
    )


def _check(samples: Samples, what: str) -> None:
    y = samples.y
    if y.ndim and not len(y):
        raise DataError(f"{what} is empty; give it at least one sample")
    if not y.ndim or y.dtype.kind not in "uif":
        raise DataError(
            f"{what}_y must be integer class labels or other numeric labels, with a row per sample, not "
            f"{y.dtype}{list(y.shape)}{number_texts(known_labels(y))}"
        )
    if isinstance(samples.x, np.ndarray) and not samples.x.ndim:
        raise DataError(f"{what}_x is a single value, not an array with a row per sample")


def _num_classes(parts: Mapping[str, Samples], what: str, stated: int | None) -> int | None:
    train = parts["train"].y
    if train.ndim != 1 or train.dtype.kind == "f":
        return None
    known = {part: known_labels(samples.y) for part, samples in parts.items()}
    for part, labels in known.items():
        if labels.dtype.kind != "f" and labels.min() < 0:
            raise DataError(
                f"{what}: {part}_y has the label {labels.min()}; classes are numbered from 0 (labels other than "
                "classes must be floating point numbers)"
            )
    if stated is not None:
        return stated
    largest = int(max(labels.max() for labels in known.values()))
    count = sum(len(samples) for samples in parts.values())
    if largest >= max(1000, count):
        raise DataError(
            f"{what}: the largest label is {largest}, which would mean {largest + 1} classes for {count} samples; "
            "number classes from 0 without gaps, for example with numpy.unique(labels, return_inverse=True) (labels "
            "other than classes must be floating point numbers)"
        )
    return largest + 1
