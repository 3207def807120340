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


def test_an_attribute_is_used_and_no_item_is_read() -> None:
    data: Any = WithTargets(vector)
    assert labels_of(data, TRIED, "here").tolist() == LABELS.tolist()
    data.targets = torch.from_numpy(LABELS)
    assert labels_of(data, TRIED, "here").tolist() == LABELS.tolist()
    assert not data.reads


def test_subsets_and_concatenations_have_the_labels_of_their_parts() -> None:
    data: Any = WithTargets(vector)
    nested: Any = ConcatDataset([Subset(Subset(data, range(10, 20)), [9, 0]), data])
    assert labels_of(nested, {}, "here").tolist() == [LABELS[19], LABELS[10], *LABELS]
    assert not data.reads
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
