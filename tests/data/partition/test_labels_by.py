"""Classes for partitions if labels are not classes, and partitions that need no classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.config.data import Data
from rayfl.data.partition.dirichlet import dirichlet
from rayfl.data.partition.labels_by import argmax, column, quantiles
from rayfl.data.store import ShardStore, build_store
from rayfl.errors import DataError, RayflError, ScenarioError
from rayfl.streams import stream
from tests.data.resolved import resolved

HERE = "tests.data.partition.test_labels_by"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
PRICES = RNG.exponential(size=300)
TOPICS = RNG.random((300, 5))
MASKS = RNG.integers(0, 3, (300, 2, 2))


def prices() -> Any:
    return X, PRICES, X, PRICES


def topics() -> Any:
    return X, TOPICS, X, TOPICS


def masks() -> Any:
    return X, MASKS, X, MASKS


def classes() -> Any:
    return X, np.arange(300) % 6, X, np.arange(300) % 6


def dear(labels: np.ndarray, limit: float = 1.0) -> np.ndarray:
    return (labels > limit).astype(int)


def floats(labels: np.ndarray) -> Any:
    return labels * 1.0


def too_few(labels: np.ndarray) -> Any:
    return np.zeros(3, int)


def negative(labels: np.ndarray) -> Any:
    return np.full(len(labels), -1)


def failing(labels: np.ndarray) -> Any:
    raise KeyError("no")


def by_target(targets: np.ndarray, clients: int) -> np.ndarray:
    """A partitioner that reads the original labels."""
    return np.argsort(np.argsort(targets)) * clients // len(targets)


def store(name: str = "prices", clients: int = 6, **data: Any) -> ShardStore:
    return build_store(Data.model_validate({"name": f"{HERE}:{name}", "clients": clients, **data}), 1, Path(), Path())


def test_quantiles_are_classes_of_equal_size_in_the_order_of_the_target() -> None:
    found = quantiles(PRICES, bins=10)
    assert np.bincount(found).tolist() == [30] * 10
    assert found[np.argsort(PRICES)].tolist() == np.repeat(np.arange(10), 30).tolist()


def test_a_frequent_value_is_in_one_class_and_classes_have_no_gaps() -> None:
    values = np.array([0.0] * 70 + [1.0] * 20 + [2.0] * 10)
    found = quantiles(values, bins=10)
    assert [np.unique(found[values == value]).tolist() for value in (0, 1, 2)] == [[0], [1], [2]]


def test_argmax_and_column_read_vectors() -> None:
    labels = np.array([[1.0, 5.0], [7.0, 3.0], [5.0, 5.0]])
    assert argmax(labels).tolist() == [1, 0, 0]
    assert column(labels, 0).tolist() == [0, 2, 1]
    assert column(labels, 1).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("name", "labels_by", "expected"),
    [
        ("prices", {"name": "quantiles", "bins": 4}, lambda: quantiles(PRICES.astype(np.float32), 4)),
        ("topics", "argmax", lambda: TOPICS.astype(np.float32).argmax(axis=1)),
        ("topics", {"name": f"{HERE}:dear_topic", "limit": 0.5}, lambda: (TOPICS[:, 0] > 0.5).astype(int)),
        ("prices", {"name": f"{HERE}:dear", "limit": 0.7}, lambda: (PRICES > 0.7).astype(int)),
        ("classes", {"name": f"{HERE}:dear", "limit": 2}, lambda: (np.arange(300) % 6 > 2).astype(int)),
    ],
)
def test_a_partition_sees_the_classes_that_are_made(name: str, labels_by: Any, expected: Any) -> None:
    found = store(name, partition={"name": "dirichlet", "beta": 0.5}, labels_by=labels_by)
    made = expected()
    plain = dirichlet(made.astype(np.int64), int(made.max()) + 1, 6, stream(1, "partition"), beta=0.5)
    assert found.train_shards.rows.tolist() == plain.rows.tolist()
    assert found.train_shards.offsets.tolist() == plain.offsets.tolist()


def test_held_out_samples_do_not_change_the_classes_of_the_others() -> None:
    options: dict[str, Any] = {"partition": "shards", "labels_by": {"name": "quantiles", "bins": 4}}
    found = store(validation_share=0.4, **options)
    assert found.made_classes is not None
    classes = {
        float(target): label for target, label in zip(PRICES.astype(np.float32), quantiles(PRICES, 4), strict=True)
    }
    assert found.made_classes.tolist() == [classes[float(target)] for target in found.train.y]


def dear_topic(labels: np.ndarray, limit: float) -> np.ndarray:
    return (labels[:, 0] > limit).astype(int)


@pytest.mark.parametrize("name", ["prices", "topics", "masks"])
def test_labels_other_than_classes_can_be_partitioned_without_classes(name: str) -> None:
    found = store(name, partition="iid", validation_share=0.1)
    assert found.num_classes is None
    assert found.summary().endswith("labels without classes")
    assert found.train.y.dtype == (np.int64 if name == "masks" else np.float32)


def test_your_own_partitioner_may_read_the_original_labels() -> None:
    found = store(partition=f"{HERE}:by_target", clients=3)
    largest = [found.train.y[found.train_shards[client]].max() for client in range(3)]
    assert largest == sorted(largest)
    assert found.train_shards.sizes.tolist() == [100, 100, 100]


def test_shards_of_made_classes_give_no_test_samples_to_clients() -> None:
    assert store(partition="shards", labels_by="quantiles").test_shards is None
    assert store("classes", partition="shards").test_shards is not None


PARTITIONS = [
    "shards",
    {"name": "dirichlet", "beta": 1.0},
    {"name": "dirichlet_plain", "alpha": 1.0},
    {"name": "dirichlet_balanced", "alpha": 1.0},
    {"name": "dirichlet_per_client", "alpha": 1.0},
    {"name": "dirichlet_per_client_unequal", "alpha": 1.0},
    {"name": "iid", "per_class": True},
]


@pytest.mark.parametrize("partition", PARTITIONS)
def test_partitions_that_need_classes_say_so_in_one_line(partition: Any) -> None:
    name = partition if isinstance(partition, str) else partition["name"]
    with pytest.raises(ScenarioError) as caught:
        store("topics", partition=partition)
    assert str(caught.value) == (
        f"data.partition: '{name}' needs class labels, but these are float32[300, 5]; choose another partition, such "
        "as 'iid', or set data.labels_by"
    )
    store("topics", partition=partition, labels_by="argmax")


@pytest.mark.parametrize("partition", ["iid", f"{HERE}:by_target"])
def test_labels_by_raises_if_the_partition_reads_no_classes(partition: str) -> None:
    with pytest.raises(
        ScenarioError, match=rf"data\.labels_by: partition '{partition}' does not use labels; leave it out"
    ):
        store(partition=partition, labels_by="quantiles")


@pytest.mark.parametrize(
    ("name", "labels_by", "message"),
    [
        ("topics", "quantiles", r"'quantiles' is for labels that are single numbers; these are float32\[300, 5\]"),
        ("prices", "argmax", r"'argmax' is for labels that are vectors \[n, k\]; these are float32\[300\]"),
        ("prices", {"name": "column", "index": 0}, "'column' is for labels that are vectors"),
        (
            "topics",
            {"name": "column", "index": 5},
            r"data\.labels_by\.index: is 5, but labels have 5 entries, numbered from 0",
        ),
        ("topics", "column", r"data\.labels_by: needs index"),
        ("prices", "quantile", "unknown way to make classes of labels 'quantile'; did you mean 'quantiles'"),
        ("prices", f"{HERE}:X", "is an object of type ndarray"),
        ("prices", f"{HERE}:floats", r"returned float32\[300\] for 300 labels; .*with all training labels"),
        ("prices", f"{HERE}:too_few", r"returned int64\[3\] for 300 labels"),
        ("prices", f"{HERE}:negative", "returned classes from -1 to -1; number them from 0"),
        ("prices", f"{HERE}:failing", "raised KeyError: 'no'"),
    ],
)
def test_functions_that_make_no_classes_are_named_by_key(name: str, labels_by: Any, message: str) -> None:
    with pytest.raises(RayflError, match=message) as caught:
        store(name, partition="shards", labels_by=labels_by)
    assert "data.labels_by" in str(caught.value) or "unknown way" in str(caught.value)
    assert isinstance(caught.value, ScenarioError | DataError)


def test_options_of_labels_by_are_filled_in() -> None:
    found = resolved(Data.model_validate({"name": "femnist", "labels_by": "quantiles"}))
    assert found.labels_by is not None
    assert found.labels_by.options == {"bins": 10}
