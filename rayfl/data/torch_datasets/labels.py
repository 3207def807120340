"""The labels of a Dataset, needed for the partition and the number of classes before inputs are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from rayfl.data.checking import unmasked
from rayfl.data.torch_datasets.items import MapStyle, read_item
from rayfl.errors import DataError

ATTRIBUTES = ("targets", "labels")
"""Attributes that may hold the labels of all items, as in torchvision."""


def labels_of(dataset: MapStyle, tried: Mapping[int, Any], where: str) -> np.ndarray:
    """All labels, from an attribute if there is one, otherwise from one pass over the items without keeping inputs.

    Also finds attributes of Datasets within `Subset` and `ConcatDataset`. If a `target_transform` is set, labels are
    read from the items.

    Args:
        dataset: Map-style.
        tried: The labels of some items, which an attribute must match.
        where: The set of samples, for messages.

    Raises:
        DataError: Labels differ in shape, or an attribute does not match the items.
    """
    labels = held_labels(dataset)
    if labels is None:
        return _together([read_item(dataset, row, where)[1] for row in range(len(dataset))], where)
    for row, label in tried.items():
        if not np.array_equal(labels[row], label):
            raise DataError(
                f"{where}: the label of item {row} is {label}, but {labels[row]} in the attribute of the Dataset; make "
                f"'{' or '.join(ATTRIBUTES)}' match the items, or rename it"
            )
    return labels


def held_labels(dataset: Any) -> np.ndarray | None:
    """The labels of all items from an attribute, without reading items; None if there is none to go by."""
    match dataset:
        case Subset():
            inner = held_labels(dataset.dataset)
            return None if inner is None else inner[np.asarray(dataset.indices, np.int64)]
        case ConcatDataset():
            parts = [held_labels(part) for part in dataset.datasets]
            found = [part for part in parts if part is not None]
            return np.concatenate(found) if len(found) == len(parts) else None
    if getattr(dataset, "target_transform", None) is not None:
        return None
    for name in ATTRIBUTES:
        held: Any = getattr(dataset, name, None)
        if hasattr(held, "__len__") and len(held) == len(dataset):
            return np.asarray(unmasked(np.asanyarray(held), f"the values of '{name}' of the Dataset"))
    return None


def _together(labels: list[Any], where: str) -> np.ndarray:
    shapes = {np.shape(label) for label in labels}
    if len(shapes) > 1:
        found = " and ".join(str(list(shape)) for shape in sorted(shapes)[:2])
        raise DataError(f"{where}: labels differ in shape ({found}); all must have the same shape")
    return np.asarray(labels)
