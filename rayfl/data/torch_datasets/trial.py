"""Converts the Datasets of a source to lazily read inputs, labels and clients, after trying some items."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rayfl.data.inputs import Fields
from rayfl.data.source_call import SourceCall
from rayfl.data.torch_datasets.forms import GivenSet, given_sets
from rayfl.data.torch_datasets.items import MapStyle, read_item
from rayfl.data.torch_datasets.labels import labels_of
from rayfl.data.torch_datasets.rows import Field, OpenSets, TorchPieces, TorchRows
from rayfl.errors import DataError

TRIED = 16
"""Number of items of each set, evenly spaced, that are read at the start. The digest of the data is based on them."""


def with_datasets_opened(loaded: Any, call: SourceCall, collated: bool) -> Any:
    """Replaces every Dataset in the result of a source by (x, y) or (x, y, clients).

    Args:
        loaded: The result of a source; anything but Datasets is kept.
        call: The call of the source.
        collated: Whether inputs may differ in length, because `data.collate` makes batches of them.

    Raises:
        DataError: A Dataset cannot be read by number, or its items are not pairs, differ, or are random.
    """
    given = given_sets(loaded, f"data.name: '{call.name}'")
    if not given:
        return loaded
    sets = OpenSets(call, {part: one.dataset for part, one in given.items()})
    return {**loaded, **{part: _opened(one, sets, part, collated) for part, one in given.items()}}


def _opened(given: GivenSet, sets: OpenSets, part: str, collated: bool) -> tuple[Any, ...]:
    where, dataset = f"{sets.name}: {part}", given.dataset
    number = len(dataset)
    places = np.unique(np.linspace(0, number - 1, min(number, TRIED)).astype(np.int64)).tolist()
    items, labels = _tried(dataset, places, where)
    tried, rows = _digest(items), np.arange(number, dtype=np.int64)
    inputs: dict[str, TorchRows | TorchPieces] = {}
    for name, first in items[0].items():
        field = Field(sets, part, name, first.shape, first.dtype, tried, ragged=collated and first.ndim > 0)
        field.of_items(places, items)
        inputs[name] = TorchPieces(field, rows) if field.ragged else TorchRows(field, rows)
    x = inputs[""] if list(inputs) == [""] else Fields(inputs)
    y = labels_of(dataset, dict(zip(places, labels, strict=True)), where)
    return (x, y) if given.clients is None else (x, y, given.clients)


def _tried(dataset: MapStyle, places: list[int], where: str) -> tuple[list[dict[str, np.ndarray]], list[Any]]:
    """Reads some items twice, since random items would differ between workers and between runs."""
    items, labels, draws = [], [], []
    for row in places:
        readings = []
        for _ in range(2):
            before = _generators()
            readings.append(read_item(dataset, row, where))
            draws.append(_generators() != before)
        (item, label), (again, _) = readings
        if item.keys() != again.keys() or not all(np.array_equal(item[name], again[name]) for name in item):
            draws = [True]
            break
        items.append(item)
        labels.append(label)
    if all(draws):
        raise DataError(
            f"{where}: items are random, so no two reads return the same; remove random transforms from the Dataset "
            "and list them in data.augment"
        )
    return items, labels


def _generators() -> tuple[Any, ...]:
    """The state of the global random generators."""
    _, keys, place, *_ = np.random.get_state()  # noqa: NPY002 - user code may draw from it
    return random.getstate(), np.asarray(keys).tobytes(), place, torch.random.get_rng_state().numpy().tobytes()


def _digest(items: Sequence[Mapping[str, np.ndarray]]) -> str:
    digest = hashlib.sha256()
    for item in items:
        for name, value in sorted(item.items()):
            digest.update(f"{name} {value.dtype} {value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
    return digest.hexdigest()
