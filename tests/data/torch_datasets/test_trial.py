"""The checks of a Dataset before the run, and its digest."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from PIL import Image

from rayfl.errors import DataError
from tests.data.torch_datasets.scene import LABELS, TEST, VECTORS, Items, N, store, vector


def both(item: Any) -> dict[str, Any]:
    return {"train": Items(item), "test": Items(item, TEST.stop)}


def rolls(row: int) -> Any:
    """Draws only in some cases, and returns the same for any draw."""
    return VECTORS[row] + 0 * random.random(), LABELS[row]


def noisy(row: int) -> Any:
    return torch.from_numpy(VECTORS[row]) + torch.randn(3), LABELS[row]


def noisy_now_and_then(row: int) -> Any:
    """Draws from its own generator, and not for every item."""
    return VECTORS[row] + (np.random.default_rng().normal() if row == N - 1 else 0), LABELS[row]


def labelled_at_random(row: int) -> Any:
    return VECTORS[row], int(np.random.default_rng().integers(1 << 40))


def numpys(row: int) -> Any:
    return VECTORS[row] + np.random.rand(), LABELS[row]  # noqa: NPY002 - as users write


@pytest.mark.parametrize("item", [rolls, noisy, noisy_now_and_then, numpys, labelled_at_random])
def test_random_items_raise(item: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train: items are random, .*list them in data\.augment") as caught:
        store(both(item), tmp_path, clients=2)
    assert "\n" not in str(caught.value)


def test_items_that_sometimes_advance_a_generator_are_allowed(tmp_path: Path) -> None:
    """Another thread may be training at the same time."""

    def item(row: int) -> Any:
        if row == 0:
            torch.randn(1)
        return vector(row)

    assert len(store(both(item), tmp_path, clients=2).train) == N


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (lambda row: VECTORS[row], r"train: item 0 is of type ndarray; __getitem__ must return a pair \(x, y\)"),
        (lambda row: (VECTORS[row], row, row), "train: item 0 is a tuple of 3; __getitem__ must return a pair"),
        (lambda row: {"x": VECTORS[row], "y": row}, r"item 0 is of type dict; .* x is a dictionary if inputs have"),
        (
            lambda row: ("text", 0),
            "train: the input of item 0 is of type str; give a tensor, an array of numbers, a PIL",
        ),
        (lambda row: ({"a": None}, 0), "train: input 'a' of item 0 is of type NoneType; give a tensor"),
        (lambda row: (VECTORS[row, : 1 + row % 2], 0), r"but \[1\] .* for the first; .*, or set data\.collate"),
        (
            lambda row: (Image.fromarray(np.full((4, 4), 999, np.uint16)), 0),
            r"train: item 0 has pixels of mode I;16; .* scale its pixels \(// 257 from 16 bits\)",
        ),
        (
            lambda row: (np.ma.masked_array(VECTORS[row], [row == 13, False, row == 13]), 0),
            "train: item 13: its inputs have masked values: the first in row 0",
        ),
        (
            lambda row: (np.where(row == 13, np.nan, VECTORS[row]), 0),
            r"train: item 13: its inputs hold values that are not finite: the first in row 0",
        ),
        (
            lambda row: ({"a": VECTORS[row], "b": np.inf if row == N - 1 else 1.0}, 0),
            r"train: item 39: its inputs 'b' hold values that are not finite",
        ),
        (lambda row: (np.full(3, 1e39), 0), r"train: item 0: its inputs hold 1e\+39, too large for float32"),
        (
            lambda row: (VECTORS[row], np.nan if row == 1 else 1.0),
            "train labels hold .* finite: the first in row 1",
        ),
        (
            lambda row: (scipy.sparse.csr_array(VECTORS[[row]]), 0),
            r"the input of item 0 is of type csr_array; give a tensor, .*; it is sparse: give its \.toarray\(\)",
        ),
        (
            lambda row: (VECTORS[row], np.ma.masked_array(row, row == 13)),
            "train: item 13: its labels have masked values",
        ),
        (
            lambda row: ((VECTORS[row], torch.ones(3)), 0),
            r"train: the input of item 0 is a tuple of 2; give one tensor \(torch\.stack\), or a dictionary with names",
        ),
        (
            lambda row: ([Image.new("RGB", (4, 4))] * 2, 0),
            "train: the input of item 0 is a list of 2; give one tensor",
        ),
        (lambda row: ({"a": [torch.ones(3)] * 2}, 0), "train: input 'a' of item 0 is a list of 2; give one tensor"),
        (
            lambda row: (VECTORS[row], (torch.tensor(0), torch.tensor(1))),
            r"train: the label of item 0 is a tuple of 2; give one tensor \(torch\.stack\)$",
        ),
        (lambda row: ({}, 0), "inputs by name: the mapping is empty"),
        (
            lambda row: (VECTORS[row], "cat"),
            r"<U3\[40\]; number the classes: .*numpy\.unique\(train_y, return_inverse=True\)",
        ),
        (lambda row: (VECTORS[row], np.datetime64("2020-01-01")), r"datetime64\[D\]\[40\]$"),
        (lambda row: (VECTORS[row], {"boxes": torch.ones(4)}), r"train_y must be integer .* not object\[40\]$"),
        (lambda row: (VECTORS[row], np.zeros(1 + row % 2)), r"train: labels differ in shape \(\[1\] and \[2\]\)"),
    ],
)
def test_items_that_no_network_can_take_raise_in_one_line(item: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as caught:
        store(both(item), tmp_path, clients=2)
    assert "\n" not in str(caught.value)


def test_the_digest_follows_items_labels_and_clients(tmp_path: Path) -> None:
    def moved(row: int) -> Any:
        return VECTORS[row] + np.float32(row == N - 1), int(LABELS[row])

    def relabelled(row: int) -> Any:
        return VECTORS[row], int(LABELS[row]) if row != 1 else 2

    clients = [[0, 1], [2]]
    given = [
        both(vector),
        both(moved),
        both(relabelled),
        both(vector) | {"train": (Items(vector), clients)},
        both(vector) | {"train": (Items(vector), clients[::-1])},
        both(vector) | {"far": Items(vector)},
    ]
    digests = [store(one, tmp_path, clients=2).provenance.digest for one in given]
    assert len(set(digests)) == len(given)
    assert store(both(vector), tmp_path, clients=2).provenance.digest == digests[0]
