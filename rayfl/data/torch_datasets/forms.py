"""The forms in which a source may return Datasets: one, one with its clients, or one per client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Dataset, IterableDataset

from rayfl.data.torch_datasets.items import MapStyle
from rayfl.errors import DataError


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
    return {part: found for part, given in loaded.items() if (found := _given_set(given, f"{what}: {part}"))}


def _given_set(given: Any, where: str) -> GivenSet | None:
    if isinstance(given, list | tuple) and all(isinstance(one, Dataset) for one in given):
        given = dict(enumerate(given))
    match given:
        case Dataset():
            return GivenSet(_checked(given, where))
        case (Dataset() as dataset, clients):
            return GivenSet(_checked(dataset, where), clients)
        case Mapping() if given and all(isinstance(one, Dataset) for one in given.values()):
            parts = [_checked(one, f"{where}['{client}']", may_be_empty=True) for client, one in given.items()]
            ends = np.cumsum([len(part) for part in parts])
            rows = np.split(np.arange(ends[-1]), ends[:-1])
            return GivenSet(_checked(ConcatDataset(given.values()), where), dict(zip(given, rows, strict=True)))
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
