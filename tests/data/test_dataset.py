from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rayfl.data.dataset import Dataset, Provenance, Samples, Shards
from rayfl.errors import DataError

X, Y = np.zeros((2, 1)), np.array([0, 1])


def dataset(train: Any, test: Any) -> Dataset:
    return Dataset("d", Samples(np.asarray(train), Y), Samples(np.asarray(test), Y), 2, Provenance("arrays", "test"))


@pytest.mark.parametrize("x", [["a", "b"], [1j, 2j], np.array([1, 2], ">f4"), [True, False]])
def test_inputs_other_than_native_numbers_raise(x: Any) -> None:
    with pytest.raises(DataError, match="allowed are integers and floating point numbers in this machine's byte order"):
        dataset(x, x)


def test_labels_that_are_strings_raise_with_code_that_numbers_them() -> None:
    train, test = np.array(["dog", "cat"]), np.array(["cat", "dog"])
    with pytest.raises(DataError, match="train labels are <U3") as caught:
        Dataset("d", Samples(X, train), Samples(X, test), 2, Provenance("arrays", "test"))
    known: dict[str, Any] = {"numpy": np, "train_y": train, "test_y": test}
    for step in str(caught.value).partition("number the classes: ")[2].split(", then "):
        exec(step, known)  # noqa: S102 - code of this test
    assert (known["train_y"].tolist(), known["test_y"].tolist()) == ([1, 0], [0, 1])


def test_training_and_test_inputs_are_of_one_kind() -> None:
    with pytest.raises(DataError, match=r"train inputs are \[\] int64, test inputs \[\] float64"):
        dataset([1, 2], [1.0, 2.0])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_inputs_that_are_not_finite_raise(wrong: float) -> None:
    """Training would diverge, apparently because of the learning rate."""
    with pytest.raises(DataError, match="test inputs hold values that are not finite"):
        dataset([[1.0], [2.0]], [[1.0], [wrong]])


def test_images_need_their_channels() -> None:
    x = np.zeros((2, 4, 4), np.uint8)
    with pytest.raises(DataError, match=r"images must be \[n, height, .*\]; \[4, 4\] uint8 has no channels"):
        dataset(x, x)


def test_shards_by_owner_hold_every_row_once_and_can_be_selected() -> None:
    shards = Shards.by_owner(np.array([1, 0, 1, 2]), 4)
    assert [shards[client].tolist() for client in range(4)] == [[1], [0, 2], [3], []]
    assert shards.sizes.tolist() == [1, 2, 1, 0]
    picked = shards.subset(np.array([1, 3]))
    assert [picked[client].tolist() for client in range(2)] == [[0, 2], []]
