"""Arrays as a data set: four arrays, or sets by name, with an owner for every row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from rayfl.config.data import Data
from rayfl.data.arrays import dataset_of_arrays, inputs_from
from rayfl.data.batches import BatchSource
from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.inputs import Ragged
from rayfl.data.store import build_store
from rayfl.errors import DataError

X, Y = np.arange(12.0)[:, None], np.arange(12) % 3
WRITERS = np.array(["eve", "ada", "bob"] * 4)
SPARSE = scipy.sparse.csr_array(np.eye(12))
GAPS = np.ma.masked_array(X, X == 4)
OWNED = {"train": (X, Y, WRITERS), "test": (X[:4], Y[:4], ["ada", "eve", "ada", "bob"]), "sketch": (X[:2], Y[:2])}


def test_owners_of_rows_become_natural_clients_in_the_order_of_their_names() -> None:
    found = dataset_of_arrays("mine", OWNED)
    assert found.natural is not None
    assert found.natural.test is not None
    assert found.natural.names == ("ada", "bob", "eve")
    assert [found.natural.train[client].tolist() for client in range(3)] == [[1, 4, 7, 10], [2, 5, 8, 11], [0, 3, 6, 9]]
    assert [found.natural.test[client].tolist() for client in range(3)] == [[0, 2], [3], [1]]
    assert list(found.tests) == ["sketch"]


@pytest.mark.parametrize("place", [0, 1])
def test_an_empty_row_of_a_ragged_list_takes_the_shape_of_the_others_pieces(place: int) -> None:
    rows: list[Any] = [[[1, 2], [3, 4]]]
    rows.insert(place, [])
    found = inputs_from(rows, "train inputs")
    assert isinstance(found, Ragged)
    assert found.dtype == np.int64
    assert [piece.tolist() for piece in found[:]] == rows
    assert [piece.shape for piece in found[:]] == [(len(row), 2) for row in rows]


def test_a_row_of_a_ragged_list_with_other_inner_dimensions_is_named() -> None:
    with pytest.raises(
        DataError, match=r"^x, row 2, are \[1, 3\], but \[2, 2\] in the first row that is not empty; only"
    ):
        inputs_from([[], [[1, 2], [3, 4]], [[5, 6, 7]]], "x")


def test_inputs_and_labels_can_have_half_precision() -> None:
    half = X.astype(np.float16)
    found = dataset_of_arrays("mine", (half, half, half, half))
    assert found.train.x.dtype == np.float16
    assert found.train.y.dtype == np.float32


def test_strings_in_an_object_array_can_be_owners() -> None:
    found = dataset_of_arrays("mine", {"train": (X, Y, WRITERS.astype(object)), "test": (X, Y)})
    assert found.natural is not None
    assert found.natural.names == ("ada", "bob", "eve")


def test_the_rows_of_every_client_are_equivalent_to_the_owner_of_every_sample() -> None:
    lists = {"eve": [6, 0], "ada": range(1, 12, 3)}
    found = dataset_of_arrays("mine", {"train": (X, Y, lists), "test": (X, Y, {"ada": [3]})})
    assert found.natural is not None
    assert found.natural.test is not None
    assert found.natural.names == ("eve", "ada")
    assert [found.natural.train[client].tolist() for client in range(2)] == [[6, 0], [1, 4, 7, 10]]
    assert [found.natural.test[client].tolist() for client in range(2)] == [[], [3]]


def test_test_samples_without_owners_belong_to_no_client(tmp_path: Path) -> None:
    store = build_store(Data(name=f"{__name__}:half_owned"), 0, tmp_path, tmp_path)
    assert store.num_clients == 2
    assert store.test_shards is None
    assert len(store.test) == 12


def half_owned() -> Any:
    return {"train": (X, Y, np.arange(12) // 6), "test": (X, Y)}


def test_lists_and_tensors_of_different_lengths_are_sequences_like_arrays() -> None:
    tokens = [[5, 2, 7], [4], [], [9, 9]]
    for form in (list, tuple, lambda one: torch.tensor(one, dtype=torch.int64)):
        found = inputs_from([form(one) for one in tokens])
        assert isinstance(found, Ragged)
        assert found.dtype == np.int64
        assert [piece.tolist() for piece in found[:]] == tokens
    assert np.array_equal(np.asarray(inputs_from([[1, 2], [3, 4]])), [[1, 2], [3, 4]])


@pytest.mark.parametrize("part", ["train", "test", "far"])
@pytest.mark.parametrize("named", [False, True])
def test_sequences_of_one_length_are_padded_like_those_of_the_other_sets_that_differ(
    part: str, named: bool, tmp_path: Path
) -> None:
    equal, ragged = [np.array([5, 2, 7]), np.array([1, 4, 4])], [[5, 2, 7], [4]]
    for rows in (equal, equal[:1], np.stack(equal)):
        sets = {name: rows if name == part else ragged for name in ("train", "test", "far")}
        GIVEN.update({name: ({"ids": x, "age": X[: len(x)]} if named else x, Y[: len(x)]) for name, x in sets.items()})
        tables = {"name": f"{__name__}:given", "clients": 1, "collate": f"{__name__}:padded" if named else "pad"}
        built = build_store(Data.model_validate(tables), 0, tmp_path, tmp_path)
        for name, x in sets.items():
            batch, _ = BatchSource(built, torch.device("cpu")).batch(name, np.arange(len(x)))
            assert batch.tolist() == ([[5, 2, 7], [1, 4, 4]][: len(x)] if name == part else [[5, 2, 7], [4, 0, 0]])


GIVEN: dict[str, Any] = {}


def given() -> Any:
    return GIVEN


def padded(rows: Any) -> Any:
    return torch.nn.utils.rnn.pad_sequence([torch.as_tensor(row["ids"]) for row in rows], batch_first=True)


class Variable:
    """As netCDF4's: `numpy.asarray` reads it, and drops the mask."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return GAPS


def test_a_mask_that_a_reader_returns_is_seen_and_an_empty_one_changes_nothing() -> None:
    with pytest.raises(DataError, match="train inputs have masked values: the first in row 4, column 0"):
        dataset_of_arrays("mine", (Variable(), Y, X, Y))
    whole = dataset_of_arrays("mine", (np.ma.masked_array(X), np.ma.masked_array(Y), X, Y))
    assert type(whole.train.x) is np.ndarray
    assert type(whole.train.y) is np.ndarray
    with pytest.raises(DataError, match="mine: test inputs have masked values"):
        Dataset("mine", Samples(X, Y), Samples(GAPS, Y), 3, Provenance("arrays", "test"))


def test_clients_without_rows_are_left_out_and_names_may_be_in_any_order() -> None:
    named, turned = {"a": X, "b": X[:, 0]}, {"b": X[:, 0], "a": X}
    rows = {"ada": list(range(6)), "bob": [], "eve": list(range(6, 12))}
    found = dataset_of_arrays("mine", {"train": (named, Y, rows), "test": (turned, Y, {"bob": [], "eve": [0]})})
    assert found.natural is not None
    assert [*found.natural.names] == ["ada", "eve"]
    assert found.natural.test is not None
    assert found.natural.test.sizes.tolist() == [0, 1]


def test_labels_other_than_single_integers_are_not_classes() -> None:
    for y, dtype, classes in (
        (Y, np.int64, 3),
        (Y.astype(np.int8), np.int64, 3),
        (Y / 2, np.float32, None),
        (np.eye(12), np.float32, None),
        (np.eye(12, dtype=bool), np.int64, None),
        (np.zeros((12, 4, 4), np.uint8), np.int64, None),
    ):
        found = dataset_of_arrays("mine", (X, y, X, y))
        assert found.train.y.dtype == dtype
        assert found.num_classes == classes
        assert found.train.y.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("loaded", "message"),
    [
        (
            {"train": (X, Y)},
            "returned an object of type dict, which is neither .* nor arrays .*'train' or 'test' is missing",
        ),
        ({**OWNED, "sketch": (X, Y, WRITERS)}, "sketch has owners; only 'train' and 'test' belong to clients"),
        ({"train": (X, Y), "test": (X, Y, WRITERS)}, "test has owners, but train has none"),
        ({"train": (X, Y, WRITERS[:3]), "test": (X, Y)}, r"the owners of train are <U3\[3\] for 12 samples"),
        ({"train": (X, Y, X), "test": (X, Y)}, r"the owners of train are float64\[12, 1\] for 12 samples"),
        (
            {"train": (X, Y, WRITERS), "test": (X, Y, ["joe"] * 12)},
            "test has samples of 'joe', but train has none; leave out the owners of test",
        ),
        (
            {"train": (X, Y, {1: [0], "1": [1]}), "test": (X, Y)},
            "train: two clients are called '1', as a number and as text; rename one",
        ),
        ((X, Y, X[:0], Y[:0]), r"^data\.name: 'mine': test is empty; give it at least one sample$"),
        (([], [], X, Y), r"^data\.name: 'mine': train is empty; give it"),
        ({"train": (X, Y), "test": (X, Y), "far": (X[:0], Y[:0])}, r"^data\.name: 'mine': far is empty; give it"),
        ({"train": (X, Y), "test": (X, Y), "server": (X, Y)}, "'server' cannot name a test set"),
        (
            (X, np.array(["a"] * 12), X, Y),
            r"train_y must be integer class labels or .* <U1\[12\]; number the classes: classes, train_y = .*, then",
        ),
        (
            (X, np.array(["a"] * 12, object), X, Y),
            r"object\[12\]; number the classes: classes, train_y = numpy\.unique",
        ),
        ((X, np.array(["2020-01-01"] * 12, "M8[D]"), X, Y), r"datetime64\[D\]\[12\]$"),
        ((X, Y * np.nan, X, Y * 1.0), "train labels hold values that are not finite: the first in row 0;"),
        (
            {"train": (np.where(X == 7, np.nan, X), Y, WRITERS), "test": (X, Y)},
            "train inputs hold values that are not finite: the first in row 7, column 0, of client 'ada'; leave such",
        ),
        (
            ([np.ones(2), np.array([1, 2, np.inf])], Y[:2], [np.ones(2)], Y[:1]),
            "train inputs hold values that are not finite: the first in row 1, column 2;",
        ),
        ((X * 1e39, Y, X, Y), r"train inputs hold 1\.1e\+40, too large for float32, .*; scale them"),
        ((X, Y, X, Y * 1e39), r"test labels hold 2e\+39, too large for float32"),
        ((X, Y.astype(np.uint64) << np.uint64(63), X, Y), r"train labels hold .*, too large for int64"),
        ((X.astype(np.uint64) << np.uint64(60), Y, X.astype(np.uint64), Y), "train inputs hold .* for int64"),
        (
            (X.astype(np.longdouble), Y, X.astype(np.longdouble), Y),
            "train inputs are float128, which is too wide; give float64 or float32",
        ),
        ((GAPS, Y, X, Y), "train inputs have masked values: the first in row 4, column 0; leave such samples out, or"),
        (({"a": GAPS}, Y, {"a": X}, Y), "train inputs 'a' have masked values: the first in row 4"),
        (({"a": [*X, GAPS[4]]}, Y, {"a": X}, Y), "train inputs 'a', row 12, have masked values"),
        ((X, np.ma.masked_equal(Y, 2), X, Y), "train labels have masked values: the first in row 2;"),
        (
            {"train": (X, Y, np.ma.masked_equal(np.arange(12), 3)), "test": (X, Y)},
            "the owners of train have masked values: the first in row 3",
        ),
        ((SPARSE, Y, SPARSE, Y), r"train inputs are of type csr_array; it is sparse: give its \.toarray\(\)"),
        ((torch.eye(12).to_sparse(), Y, X, Y), r"inputs are of type Tensor; it is sparse: give its \.to_dense\(\)"),
        ((X, SPARSE, X, SPARSE), r"train labels are of type csr_array; it is sparse"),
        (([[[1], [2, 3]]] * 12, Y, X, Y), "train inputs are lists that differ in length or depth below the first"),
        ((X, [[1], [2, 3]] * 6, X, Y), "train labels are lists that differ in length or depth"),
        ((X, Y, X, Y / 2), r"train labels are int64\[12\], test labels float32\[12\]|test labels are float32"),
        ((X, np.eye(12), X, np.eye(11)), r"test has 12 inputs but 11 labels"),
        ((X, np.eye(12), X, np.eye(12)[:, :5]), r"train labels are float32\[12, 12\], test labels float32\[12, 5\]"),
    ],
)
def test_inconsistent_arrays_raise_in_one_line(loaded: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        dataset_of_arrays("mine", loaded)
    assert "\n" not in str(caught.value)
