"""The forms in which a source returns Datasets and clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset, IterableDataset, Subset

from rayfl.errors import DataError
from tests.data.torch_datasets.scene import HERE, LABELS, TEST, VECTORS, Items, N, WithTargets, store, vector

SITE = np.array(["site_1", "site_0", "site_2", "site_0"] * 10)
LISTS = {"site_1": [3, 4, 39], "site_0": np.array([1, 0]), "site_2": [30]}


def with_clients(clients: Any, test: Any = None) -> dict[str, Any]:
    held_out = WithTargets(vector, TEST.stop)
    return {"train": (WithTargets(vector), clients), "test": held_out if test is None else (held_out, test)}


def test_every_client_has_the_items_of_its_list_and_other_items_have_no_client(tmp_path: Path) -> None:
    found = store(with_clients(LISTS), tmp_path)
    assert [found.train.x.rows[found.train_shards[client]].tolist() for client in range(3)] == [
        [3, 4, 39],
        [1, 0],
        [30],
    ]
    assert found.train.y.tolist() == LABELS[[3, 4, 39, 1, 0, 30]].tolist()
    assert found.test_shards is None


def test_owners_of_items_are_clients_in_the_order_of_their_names(tmp_path: Path) -> None:
    found = store(with_clients(SITE), tmp_path)
    for client, name in enumerate(("site_0", "site_1", "site_2")):
        assert found.train.x.rows[found.train_shards[client]].tolist() == np.flatnonzero(name == SITE).tolist()


def test_a_dataset_for_each_client_and_lists_for_the_test_samples(tmp_path: Path) -> None:
    whole = WithTargets(vector)
    parts = [Subset(whole, [0, 5, 9]), Subset(whole, [7, 2])]
    test = (WithTargets(vector, TEST.stop), {"b": [1, 2], "a": [0]})
    by_name = store({"train": {"a": parts[0], "b": parts[1]}, "test": test}, tmp_path)
    assert by_name.test_shards is not None
    for client, (rows, test_rows) in enumerate((([0, 5, 9], [0]), ([7, 2], [1, 2]))):
        mine, tested = by_name.train_shards[client], by_name.test_shards[client]
        np.testing.assert_array_equal(by_name.train.x[mine], VECTORS[rows])
        np.testing.assert_array_equal(by_name.test.x[tested], VECTORS[test_rows])
        assert by_name.train.y[mine].tolist() == LABELS[rows].tolist()
    in_order = store({"train": parts, "test": WithTargets(vector, TEST.stop)}, tmp_path)
    assert in_order.train_shards.sizes.tolist() == [3, 2]


def test_arrays_beside_datasets_and_additional_test_sets(tmp_path: Path) -> None:
    given = {"train": Items(vector), "test": (VECTORS[TEST], LABELS[TEST]), "far": Items(vector, 9)}
    found = store(given, tmp_path, clients=2)
    assert len(found.held_out["far"].samples) == 9
    assert "PyTorch Datasets from" in found.provenance.description


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield vector(0)


class Unsized(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return vector(index)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (Items(vector), r"returned a Dataset without a name; return \{'train': \.\.\., 'test': \.\.\.\}"),
        ((Items(vector), Items(vector)), "returned a Dataset without a name; return"),
        ({"train": Items(vector)}, "'train' or 'test' is missing"),
        ({"train": Stream(), "test": Items(vector)}, "train: Stream is an IterableDataset, whose .*'arrow_file'"),
        ({"train": Unsized(), "test": Items(vector)}, "train: Unsized has no __len__; add one that returns the number"),
        ({"train": Items(vector), "test": Items(vector, 0)}, "test: Items is empty"),
        ({"train": {"a": Stream()}, "test": Items(vector)}, r"train\['a'\]: Stream is an IterableDataset"),
        ({"train": [Items(vector, 0)], "test": Items(vector)}, "train: ConcatDataset is empty"),
        (with_clients({"a": [0, 1], "b": [1]}), r"train returned row 1 more than once \(clients 0 and 1\)"),
        (with_clients([[0, N]]), "train returned row 40, but the 40 training samples are rows 0 to 39"),
        (with_clients({"a": [0.5]}), "train returned Shards whose rows are an array float64"),
        (with_clients({"a": [0], "b": [[1]]}), r"train: the rows of 'b' are int64\[1, 1\]; give a list"),
        (with_clients({"a": 3}), r"train: the rows of 'a' are int64\[\]; give a list"),
        (with_clients({}), "train names no clients"),
        (with_clients(SITE[:3]), r"the owners of train are <U6\[3\] for 40 samples; give an integer or a string for"),
        (with_clients(LISTS, {"joe": [0]}), "test has samples of 'joe', but train has none; leave out the owners of"),
    ],
)
def test_other_objects_raise_in_one_line(returned: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as caught:
        store(returned, tmp_path)
    assert "\n" not in str(caught.value)
    assert HERE in str(caught.value) or "partition 'natural'" in str(caught.value)
