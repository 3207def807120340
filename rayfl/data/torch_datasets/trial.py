"""Converts the Datasets of a source to lazily read inputs, labels and clients, after trying some items."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rayfl.data.checking import check_values
from rayfl.data.inputs import Fields, spaced
from rayfl.data.source_call import SourceCall
from rayfl.data.torch_datasets.forms import GivenSet, given_sets
from rayfl.data.torch_datasets.items import MapStyle, read_item
from rayfl.data.torch_datasets.labels import labels_of
from rayfl.data.torch_datasets.rows import Field, OpenSets, TorchPieces, TorchRows, items_digest
from rayfl.data.torch_datasets.tried import Tried, one_thread
from rayfl.errors import DataError

Item = dict[str, np.ndarray]
"""The inputs of an item by name."""


def with_datasets_opened(loaded: Any, call: SourceCall, collated: bool) -> Any:
    """Replaces every Dataset in the result of a source by (x, y) or (x, y, clients).

    Args:
        loaded: The result of a source; anything but Datasets is kept.
        call: The call of the source.
        collated: Whether inputs may differ in length, because `data.collate` makes batches of them.

    Raises:
        DataError: A Dataset cannot be read by number, or its items are not pairs, differ, or are random.
    """
    source = f"data.name: '{call.name}'"
    given = given_sets(loaded, source)
    if not given:
        return loaded
    with one_thread():
        read = {part: _tried(one.dataset, f"{source}: {part}") for part, one in given.items()}
    tried = {part: Tried.of(one.dataset, *read[part]) for part, one in given.items()}
    sets = OpenSets(call, {part: one.dataset for part, one in given.items()}, tried)
    return {**loaded, **{part: _opened(one, sets, part, *read[part], collated) for part, one in given.items()}}


def _opened(
    given: GivenSet, sets: OpenSets, part: str, items: Sequence[Item], labels: Sequence[Any], collated: bool
) -> tuple[Any, ...]:
    where, dataset = f"{sets.name}: {part}", given.dataset
    places, tried, rows = spaced(len(dataset)), items_digest(items), np.arange(len(dataset), dtype=np.int64)
    inputs: dict[str, TorchRows | TorchPieces] = {}
    for name, first in items[0].items():
        field = Field(sets, part, name, first.shape, first.dtype, tried, ragged=collated and first.ndim > 0)
        field.of_items(places, items)
        inputs[name] = TorchPieces(field, rows) if field.ragged else TorchRows(field, rows)
    x = inputs[""] if list(inputs) == [""] else Fields(inputs)
    y = labels_of(dataset, dict(zip(places, labels, strict=True)), where)
    return (x, y) if given.clients is None else (x, y, given.clients)


def _tried(dataset: MapStyle, where: str) -> tuple[list[Item], list[Any]]:
    """Reads some items twice, since random items would differ between workers and between runs."""
    items, labels, draws = [], [], []
    for row in spaced(len(dataset)):
        readings = []
        for _ in range(2):
            before = _generators()
            readings.append(read_item(dataset, row, where))
            draws.append(_generators() != before)
        (item, label), (again, label_again) = readings
        for name, values in item.items():
            inputs = f"{where}: item {row}: its inputs" + (f" '{name}'" if name else "")
            check_values(np.atleast_1d(values), inputs)
        if not _equal(item, again) or not _equal({"": np.asarray(label)}, {"": np.asarray(label_again)}):
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


def _equal(item: Item, again: Item) -> bool:
    return item.keys() == again.keys() and all(
        values.dtype == object or np.array_equal(values, again[name], equal_nan=values.dtype.kind == "f")
        for name, values in item.items()
    )


def _generators() -> tuple[Any, ...]:
    """The state of the global random generators."""
    _, keys, place, *_ = np.random.get_state()  # noqa: NPY002 - user code may draw from it
    return random.getstate(), np.asarray(keys).tobytes(), place, torch.random.get_rng_state().numpy().tobytes()
