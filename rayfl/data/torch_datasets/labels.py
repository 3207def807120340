"""The labels of a Dataset, which a partition and the number of classes need before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from rayfl.data.torch_datasets.items import MapStyle, read_item
from rayfl.errors import DataError

ATTRIBUTES = ("targets", "labels")
"""Where a Dataset may keep its labels, one for each item, as torchvision's do."""


def labels_of(dataset: MapStyle, tried: Mapping[int, Any], where: str) -> np.ndarray:
    """All labels, from an attribute that holds them; else in one pass over the items, whose inputs are not kept.

    Attributes of a Dataset under `Subset` and `ConcatDataset` are found too. Where a `target_transform` is set, items
    alone know their labels.

    Args:
        dataset: Map-style.
        tried: The labels of some items, with which an attribute has to agree.
        where: The set of samples, for messages.

    Raises:
        DataError: Labels that differ in shape, or an attribute that says something else than the items.
    """
    labels = _held(dataset)
    if labels is None:
        return _together([read_item(dataset, row, where)[1] for row in range(len(dataset))], where)
    for row, label in tried.items():
        if not np.array_equal(labels[row], label):
            raise DataError(
                f"{where}: the label of item {row} is {label}, while the Dataset's attribute says {labels[row]}; let "
                f"'{' or '.join(ATTRIBUTES)}' agree with the items, or rename it"
            )
    return labels


def _held(dataset: Any) -> np.ndarray | None:
    match dataset:
        case Subset():
            inner = _held(dataset.dataset)
            return None if inner is None else inner[np.asarray(dataset.indices, np.int64)]
        case ConcatDataset():
            parts = [_held(part) for part in dataset.datasets]
            found = [part for part in parts if part is not None]
            return np.concatenate(found) if len(found) == len(parts) else None
    if getattr(dataset, "target_transform", None) is not None:
        return None
    for name in ATTRIBUTES:
        held: Any = getattr(dataset, name, None)
        if hasattr(held, "__len__") and len(held) == len(dataset):
            return np.asarray(held)
    return None


def _together(labels: list[Any], where: str) -> np.ndarray:
    shapes = {np.shape(label) for label in labels}
    if len(shapes) > 1:
        found = " and ".join(str(list(shape)) for shape in sorted(shapes)[:2])
        raise DataError(f"{where}: labels differ in shape ({found}); give them one")
    return np.asarray(labels)
