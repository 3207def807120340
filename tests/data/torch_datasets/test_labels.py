"""Labels of a Dataset come from its attribute if it matches the items, otherwise from the items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from rayfl.data.torch_datasets import labels_of
from rayfl.errors import DataError
from tests.data.torch_datasets.scene import LABELS, TEST, VECTORS, Items, N, WithTargets, store, vector

TRIED = {0: 0, 3: 0, 39: 0}


def test_an_attribute_is_used_and_one_item_of_each_class_is_read() -> None:
    data: Any = WithTargets(vector)
    for targets in (LABELS.tolist(), torch.from_numpy(LABELS), LABELS.astype(np.uint8)):
        data.reads.clear()
        data.targets = targets
        assert labels_of(data, TRIED, "here").tolist() == LABELS.tolist()
        assert set(data.reads) == {int(np.flatnonzero(label == LABELS)[0]) for label in (1, 2)}


def test_items_that_merge_a_rare_class_of_the_attribute_raise() -> None:
    data: Any = WithTargets(lambda row: (VECTORS[row], int(LABELS[row]) % 2))
    with pytest.raises(DataError, match=r"here: the label of item \d+ is 0, but 2 in the attribute"):
        labels_of(data, TRIED, "here")


@pytest.mark.parametrize("held", [[20, 90], [0.1, 0.7], [np.float32(0.1), np.float32(0.7)]])
def test_labels_have_the_type_of_the_items(held: list[Any]) -> None:
    data: Any = Items(lambda row: (VECTORS[row], torch.tensor(float(data.labels[row]))))
    data.labels = held * (N // 2)
    labels = labels_of(data, {0: np.float32(held[0]), 3: np.float32(held[1])}, "here")
    assert labels.dtype == np.float32
    np.testing.assert_array_equal(labels, np.float32(data.labels))


@pytest.mark.parametrize("held", [["cat", "dog"], ["a.png", "b.png"], [[1], [1, 2]], [0.0, 1.0]])
def test_an_attribute_of_names_or_of_another_type_is_ignored(held: list[Any]) -> None:
    data: Any = Items(lambda row: (VECTORS[row], row % 2))
    data.labels = held * (N // 2)
    assert labels_of(data, {0: 0, 3: 1}, "here").tolist() == [0, 1] * (N // 2)
    maps: Any = Items(lambda row: (VECTORS[row], np.full((2, 2), row)))
    maps.targets = LABELS
    assert labels_of(maps, {3: np.full((2, 2), 3)}, "here").shape == (N, 2, 2)


def test_subsets_and_concatenations_have_the_labels_of_their_parts() -> None:
    data: Any = WithTargets(vector)
    nested: Any = ConcatDataset([Subset(Subset(data, range(10, 20)), [9, 0]), data])
    assert labels_of(nested, {}, "here").tolist() == [LABELS[19], LABELS[10], *LABELS]
    assert len(data.reads) == 3
    mixed: Any = ConcatDataset([data, Items(vector)])
    assert labels_of(mixed, {}, "here").tolist() == [*LABELS, *LABELS]
    assert len(data.reads) == N


@pytest.mark.parametrize("attribute", ["short", "transformed", "none"])
def test_without_such_an_attribute_all_items_are_read_once(attribute: str) -> None:
    data: Any = Items(lambda row: (VECTORS[row], -int(LABELS[row])))
    if attribute == "short":
        data.labels = ["cat", "dog"]
    if attribute == "transformed":
        data.targets, data.target_transform = LABELS, lambda y: -y
    assert labels_of(data, {}, "here").tolist() == (-LABELS).tolist()
    assert set(data.reads.values()) == {1}


def test_an_attribute_that_differs_from_the_items_raises() -> None:
    with pytest.raises(
        DataError, match="here: the label of item 3 is 2, but 0 in the attribute of the Dataset; make '"
    ):
        labels_of(WithTargets(vector), {0: 0, 3: 2}, "here")


def test_labels_may_be_numbers_vectors_and_maps(tmp_path: Path) -> None:
    x = torch.from_numpy(VECTORS)
    for y, classes in ((x[:, 0], None), (x, None), (torch.from_numpy(LABELS), 3)):
        data = TensorDataset(x, y)
        found = store({"train": data, "test": Subset(data, range(TEST.stop))}, tmp_path, clients=2, partition="iid")
        assert found.num_classes == classes
        np.testing.assert_array_equal(found.test.y, y[TEST])
