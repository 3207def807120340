"""Map-style PyTorch Datasets as a source of data: their forms, their items and their labels.

A source may return one, one with its clients, or one per client. An item is its input, or named inputs, as arrays, and
its label. Labels are needed for the partition and the number of classes before inputs are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

from rayfl.data.checks import CHANNELS, how_to_make_dense, unmasked
from rayfl.data.formats.image_files import in_eight_bits
from rayfl.errors import DataError, RayflError
from rayfl.wording import report_as_theirs


class MapStyle(Protocol):
    """A Dataset whose items are read by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def read_item(dataset: MapStyle, row: int, where: str) -> tuple[dict[str, np.ndarray], Any]:
    """Reads one item.

    PIL images and uint8 tensors [channels, height, width] become [height, width, channels] uint8. All other tensors and
    arrays keep their layout.

    Args:
        dataset: Map-style; its items are pairs (x, y), where x may be a dictionary.
        row: Number of the item.
        where: The set of samples, for messages.

    Returns:
        The inputs by name (a single one has the name ""), and the label.

    Raises:
        DataError: The item is not such a pair, or the Dataset raised an exception.
    """
    try:
        item = dataset[row]
    except RayflError:
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise DataError(report_as_theirs(error, f"{where}: item {row}")) from None
    if not (isinstance(item, tuple) and len(item) == 2):
        described = f"a tuple of {len(item)}" if isinstance(item, tuple) else f"of type {type(item).__name__}"
        raise DataError(
            f"{where}: item {row} is {described}; __getitem__ must return a pair (x, y), where x is a dictionary if "
            "inputs have names"
        )
    x, y = item
    if _holds_arrays(y):
        raise DataError(
            f"{where}: the label of item {row} is a {type(y).__name__} of {len(y)}; give one tensor (torch.stack)"
        )
    named = x if isinstance(x, Mapping) else {"": x}
    return (
        {str(name): _array(value, name, row, where) for name, value in named.items()},
        unmasked(_label(y), f"{where}: item {row}: its labels"),
    )


def _array(value: Any, name: str, row: int, where: str) -> np.ndarray:
    which = f"input '{name}'" if name else "the input"
    if _holds_arrays(value):
        raise DataError(
            f"{where}: {which} of item {row} is a {type(value).__name__} of {len(value)}; give one tensor "
            "(torch.stack), or a dictionary with names, which are arguments of the network's forward"
        )
    match value:
        case torch.Tensor() if value.dtype == torch.uint8 and value.ndim == 3 and not _has_channels_last(value.shape):
            return np.ascontiguousarray(value.detach().cpu().permute(1, 2, 0).numpy())
        case torch.Tensor() if value.dtype == torch.bfloat16:
            return value.detach().cpu().float().numpy()
        case torch.Tensor():
            return value.detach().cpu().numpy()
        case Image.Image():
            pixels = np.asarray(in_eight_bits(value, "L" if value.mode == "L" else "RGB", f"{where}: item {row}"))
            return pixels[..., None] if pixels.ndim == 2 else pixels
    try:
        array = np.asanyarray(value)
    except Exception:  # an arbitrary object may raise anything
        array = np.empty(0, object)
    if array.dtype.kind not in "uifb":
        raise DataError(
            f"{where}: {which} of item {row} is of type {type(value).__name__}; give a tensor, an array of numbers, a "
            f"PIL image, or a dictionary of these{how_to_make_dense(value)}"
        )
    return np.asarray(unmasked(array, f"{where}: item {row}: its inputs"))


def _holds_arrays(value: Any) -> bool:
    """Whether PyTorch's DataLoader makes a list of batches of it, where NumPy makes one array."""
    return isinstance(value, list | tuple) and any(
        isinstance(one, torch.Tensor | np.ndarray | Image.Image) for one in value
    )


def _has_channels_last(shape: torch.Size) -> bool:
    return shape[-1] in CHANNELS and shape[0] not in CHANNELS


def _label(y: Any) -> Any:
    if isinstance(y, Image.Image):  # a map of classes
        return np.asarray(y)
    return y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else y


@dataclass(frozen=True)
class GivenSet:
    """A set of samples.

    Attributes:
        dataset: Map-style, with at least one item.
        clients: The owner of every item, or the items of every client; None if not given.
    """

    dataset: MapStyle
    clients: Any = None


def given_sets(loaded: Any, what: str) -> dict[str, GivenSet]:
    """Finds the sets of samples that are Datasets in the result of a source.

    Args:
        loaded: A mapping from the names of sets to a Dataset; (Dataset, clients); or the Datasets of the clients, a
            list or a mapping from their names. Anything else is ignored.
        what: The source, for messages.

    Raises:
        DataError: A Dataset has no set name, or its items cannot be read by number.
    """
    if not isinstance(loaded, Mapping):
        several = loaded if isinstance(loaded, tuple | list) else (loaded,)
        if any(isinstance(one, Dataset) for one in several):
            raise DataError(f"{what}: returned a Dataset without a name; return {{'train': ..., 'test': ...}}")
        return {}
    return {part: given_set for part, entry in loaded.items() if (given_set := _given_set(entry, f"{what}: {part}"))}


def _given_set(entry: Any, where: str) -> GivenSet | None:
    if isinstance(entry, list | tuple) and all(isinstance(one, Dataset) for one in entry):
        entry = dict(enumerate(entry))
    match entry:
        case Dataset():
            return GivenSet(_checked(entry, where))
        case (Dataset() as dataset, clients):
            return GivenSet(_checked(dataset, where), clients)
        case Mapping() if entry and all(isinstance(one, Dataset) for one in entry.values()):
            parts = [_checked(one, f"{where}['{client}']", may_be_empty=True) for client, one in entry.items()]
            ends = np.cumsum([len(part) for part in parts])
            rows = np.split(np.arange(ends[-1]), ends[:-1])
            return GivenSet(_checked(ConcatDataset(entry.values()), where), dict(zip(entry, rows, strict=True)))
    return None


def _checked(dataset: Dataset[Any], where: str, may_be_empty: bool = False) -> MapStyle:
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        raise DataError(
            f"{where}: {kind} is an IterableDataset, whose items cannot be read by number; give a map-style Dataset, "
            "or write its items to an Arrow file (data.name = 'arrow_file')"
        )
    if not hasattr(dataset, "__len__"):
        raise DataError(f"{where}: {kind} has no __len__; add one that returns the number of items")
    if not len(dataset) and not may_be_empty:
        raise DataError(f"{where}: {kind} is empty")
    return dataset


ATTRIBUTES = ("targets", "labels")
"""Attributes that may hold the labels of all items, as in torchvision."""

CLASSES_TRIED = 64
"""Of at most so many classes that no tried item has, the first item is read."""


def labels_of(dataset: MapStyle, tried: Mapping[int, Any], where: str) -> np.ndarray:
    """All labels, from an attribute if there is one, otherwise from one pass over the items without keeping inputs.

    Also finds attributes of Datasets within `Subset` and `ConcatDataset`. If a `target_transform` is set, labels are
    read from the items, and so they are if the attribute has another shape or type. Where the items' labels are
    floating point numbers, any numbers of the attribute become such.

    Args:
        dataset: Map-style.
        tried: The labels of some items, which an attribute must match.
        where: The set of samples, for messages.

    Raises:
        DataError: Labels differ in shape, or an attribute does not match the items.
    """
    labels = held_labels(dataset)
    if labels is not None:
        labels = _as_in_items(labels, list(tried.values()))
    if labels is None:
        return _together([read_item(dataset, row, where)[1] for row in range(len(dataset))], where)
    more = {row: read_item(dataset, row, where)[1] for row in _of_other_classes(labels, list(tried))}
    for row, label in {**tried, **more}.items():
        if not np.array_equal(labels[row], label):
            values = f"is {label}, but {labels[row]}" if np.ndim(label) == 0 else "is another than"
            raise DataError(
                f"{where}: the label of item {row} {values} in the attribute of the Dataset; make "
                f"'{' or '.join(ATTRIBUTES)}' match the items, or rename it"
            )
    return labels


def _of_other_classes(labels: np.ndarray, rows: list[int]) -> list[int]:
    """The first item of each of some classes that none of these rows has."""
    if labels.ndim != 1 or not _is_whole(labels.dtype):
        return []
    classes, firsts = np.unique(labels, return_index=True)
    found: list[int] = firsts[~np.isin(classes, labels[rows])][:CLASSES_TRIED].tolist()
    return found


def _as_in_items(labels: np.ndarray, tried: Sequence[Any]) -> np.ndarray | None:
    """Labels of an attribute in the type of those of the items, or None if they are something else."""
    types = {np.asarray(label).dtype for label in tried}
    if any(labels.shape[1:] != np.shape(label) for label in tried):
        return None
    if types and all(kind.kind == "f" for kind in types):
        return labels.astype(np.result_type(*types))
    return labels if all(_is_whole(kind) == _is_whole(labels.dtype) for kind in types) else None


def _is_whole(kind: np.dtype) -> bool:
    return kind.kind in "ui"


def held_labels(dataset: Any) -> np.ndarray | None:
    """The labels of all items from an attribute, without reading items; None if there is none to go by."""
    match dataset:
        case Subset():
            inner = held_labels(dataset.dataset)
            return None if inner is None else inner[np.asarray(dataset.indices, np.int64)]
        case ConcatDataset():
            parts = [held_labels(part) for part in dataset.datasets]
            known = [part for part in parts if part is not None]
            return np.concatenate(known) if len(known) == len(parts) else None
    if getattr(dataset, "target_transform", None) is not None:
        return None
    for name in ATTRIBUTES:
        held: Any = getattr(dataset, name, None)
        if hasattr(held, "__len__") and len(held) == len(dataset):
            values = _numbers(held)
            return None if values is None else np.asarray(unmasked(values, f"the values of '{name}' of the Dataset"))
    return None


def _numbers(held: Any) -> np.ndarray | None:
    """An attribute as an array; None if it holds names, paths or tables."""
    try:
        values = np.asanyarray(held)
    except ValueError:  # rows differ in length
        return None
    return values if values.dtype.kind in "uifb" else None


def _together(labels: list[Any], where: str) -> np.ndarray:
    shapes = {np.shape(label) for label in labels}
    if len(shapes) > 1:
        described = " and ".join(str(list(shape)) for shape in sorted(shapes)[:2])
        raise DataError(f"{where}: labels differ in shape ({described}); all must have the same shape")
    return np.asarray(labels)
